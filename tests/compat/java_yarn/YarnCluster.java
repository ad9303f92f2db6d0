import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * Hadoop's own YARN on loopback: a resource manager and node managers, until standard input ends.
 * Arguments: the file that clients read its addresses from, and the number of nodes.
 */
final class YarnCluster {
    private static final long CONNECT_MS_MAX = 300_000;

    public static void main(String[] arguments) throws Exception {
        YarnConfiguration chosen = new YarnConfiguration();
        chosen.setInt(YarnConfiguration.NM_PMEM_MB, 2048);
        chosen.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 128);
        chosen.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
        chosen.setFloat(YarnConfiguration.NM_MAX_PER_DISK_UTILIZATION_PERCENTAGE, 100f);
        chosen.set("yarn.scheduler.capacity.root.queues", "default");
        chosen.set("yarn.scheduler.capacity.root.default.capacity", "100");
        chosen.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1");
        try (MiniYARNCluster cluster =
                new MiniYARNCluster("headwater", Integer.parseInt(arguments[1]), 1, 1)) {
            cluster.init(chosen);
            cluster.start();
            if (!cluster.waitForNodeManagersToConnect(CONNECT_MS_MAX)) {
                throw new IllegalStateException("the nodes do not connect");
            }
            try (OutputStream file = new FileOutputStream(arguments[0])) {
                cluster.getConfig().writeXml(file);
            }
            System.out.println("ready");
            while (System.in.read() >= 0) {}
        }
    }
}
