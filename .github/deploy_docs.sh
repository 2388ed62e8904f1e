#!/usr/bin/env bash
# Publish the documentation as a version, with an alias if one is named: deploy_docs.sh VERSION [ALIAS]
set -euo pipefail
remote="https://x-access-token:$GITHUB_TOKEN@github.com/$GITHUB_REPOSITORY"
git config user.name github-actions
git config user.email github-actions@users.noreply.github.com
git fetch --quiet "$remote" gh-pages:gh-pages || echo "the first documentation"
mike deploy --update-aliases "$@"
if [ $# -gt 1 ]; then mike set-default "$2"; fi
git push "$remote" gh-pages
