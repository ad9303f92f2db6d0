import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/** Kafka's own StandardAuthorizer answers questions from standard input, one line each. */
final class Decisions {
    private record Context(String host, KafkaPrincipal principal)
            implements AuthorizableRequestContext {
        public String listenerName() {
            return "";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public InetAddress clientAddress() {
            try {
                return InetAddress.getByName(host);
            } catch (java.net.UnknownHostException wrong) {
                throw new IllegalArgumentException(wrong);
            }
        }

        public int requestType() {
            return 0;
        }

        public int requestVersion() {
            return 0;
        }

        public String clientId() {
            return "";
        }

        public int correlationId() {
            return 0;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<Uuid, StandardAcl> acls = new LinkedHashMap<>();
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("super.users", "User:root;User:CN=a,O=b"));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] part = line.split("\t", -1);
            switch (part[0]) {
                case "world" -> acls.clear();
                case "acl" -> {
                    var acl = new StandardAcl(
                            ResourceType.valueOf(part[1]), part[2], PatternType.valueOf(part[3]),
                            part[4], part[5], AclOperation.valueOf(part[6]),
                            AclPermissionType.valueOf(part[7]));
                    if (!acls.containsValue(acl)) {
                        acls.put(new Uuid(1, acls.size()), acl);
                    }
                }
                case "use" -> authorizer.loadSnapshot(acls);
                case "ask" -> {
                    var pattern = new ResourcePattern(
                            ResourceType.valueOf(part[4]), part[5], PatternType.LITERAL);
                    var action = new Action(
                            AclOperation.valueOf(part[3]), pattern, 1, false, false);
                    var answer = authorizer.authorize(context(part), List.of(action));
                    out.append(line).append('\t').append(answer.get(0)).append('\n');
                }
                case "any" -> out.append(line).append('\t').append(
                        authorizer.authorizeByResourceType(context(part),
                                AclOperation.valueOf(part[3]), ResourceType.valueOf(part[4])))
                        .append('\n');
                case "filter" -> {
                    var found = authorizer.acls(new AclBindingFilter(
                            new ResourcePatternFilter(ResourceType.valueOf(part[1]),
                                    orNull(part[2]), PatternType.valueOf(part[3])),
                            new AccessControlEntryFilter(orNull(part[4]), orNull(part[5]),
                                    AclOperation.valueOf(part[6]),
                                    AclPermissionType.valueOf(part[7]))));
                    long count = StreamSupport.stream(found.spliterator(), false).count();
                    out.append(line).append('\t').append(count).append('\n');
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.out.print(out);
    }

    private static Context context(String[] part) {
        return new Context(part[2], SecurityUtils.parseKafkaPrincipal(part[1]));
    }

    private static String orNull(String text) {
        return text.equals("<any>") ? null : text;
    }
}
