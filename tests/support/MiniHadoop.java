import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * HDFS and YARN in one process, a node each: a directory for its clients' configuration, a port to
 * listen on once they are up, and their settings.
 */
public class MiniHadoop {
  public static void main(String[] args) throws Exception {
    Configuration conf = new YarnConfiguration();
    for (int i = 2; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      conf.set(pair[0], pair[1]);
    }
    conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(args[0], "hdfs").getPath());
    String hdfs = new MiniDFSCluster.Builder(conf).numDataNodes(1).build().getURI().toString();
    MiniYARNCluster yarn = new MiniYARNCluster("yarn", 1, 1, 1);
    yarn.init(conf);
    yarn.start();
    Configuration client = new Configuration(false);
    client.set("fs.defaultFS", hdfs);
    for (String service : new String[] {"", ".scheduler"}) {
      String name = "yarn.resourcemanager" + service + ".address";
      client.set(name, yarn.getConfig().get(name));
    }
    for (String name : new String[] {"core-site.xml", "yarn-site.xml"}) {
      try (OutputStream out = new FileOutputStream(new File(args[0], name))) {
        client.writeXml(out);
      }
    }
    ServerSocket ready =
        new ServerSocket(Integer.parseInt(args[1]), 1, InetAddress.getLoopbackAddress());
    while (true) {
      ready.accept().close();
    }
  }
}
