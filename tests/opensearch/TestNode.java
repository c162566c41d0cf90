import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.plugins.Plugin;

/** One node of OpenSearch with k-NN, in the folder that is its argument. It ends when its standard input ends. */
public class TestNode extends Node {
    TestNode(Environment environment, List<Class<? extends Plugin>> plugins) {
        super(environment, plugins, false);
    }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", arguments[0])
            .put("node.portsfile", true)
            .put("http.port", 0)
            .put("transport.port", 0)
            .put("network.host", "127.0.0.1")
            .put("discovery.type", "single-node")
            .put("transport.type", "netty4")
            .put("http.type", "netty4")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
        Environment environment = InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "n1");
        Node node = new TestNode(environment, List.of(
            org.opensearch.transport.Netty4Plugin.class,
            org.opensearch.analysis.common.CommonAnalysisPlugin.class,
            org.opensearch.painless.PainlessPlugin.class,
            org.opensearch.knn.plugin.KNNPlugin.class
        ));
        node.start();
        while (System.in.read() >= 0) { }
        System.exit(0);
    }
}
