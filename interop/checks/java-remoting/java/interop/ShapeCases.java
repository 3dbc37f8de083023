package interop;

import static org.apache.rocketmq.common.protocol.RequestCode.GET_BROKER_CONFIG;
import static org.apache.rocketmq.common.protocol.RequestCode.GET_NAMESRV_CONFIG;

import com.alibaba.fastjson.JSON;
import java.io.File;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Every header class and every JSON body of the stock jar, filled with sample values, sent to the
 * server, read there with its class of that name, written again and read here again.
 *
 * The classes are taken from the jar itself, so none can be forgotten.
 */
final class ShapeCases {
    /** In the remark of an answer: nothing in 4.9.8 uses this class, so the server has none. */
    private static final String UNUSED = "unused";

    static Suite suite() {
        return new Suite()
            .add("every header class, all fields", peer -> headers(peer, true))
            .add("every header class, mandatory fields only", peer -> headers(peer, false))
            .add("every body class, all members", ShapeCases::bodies);
    }

    private static String headers(Peer peer, boolean full) throws Exception {
        Tally tally = new Tally();
        for (Class<? extends CommandCustomHeader> headerClass : classesOf(CommandCustomHeader.class)) {
            CommandCustomHeader header = new Samples(full).header(headerClass);
            RemotingCommand request = RemotingCommand.createRequestCommand(GET_BROKER_CONFIG, header);
            request.setRemark(headerClass.getSimpleName());
            RemotingCommand answer = peer.call(request, Peer.TIMEOUT_MS);
            tally.take(headerClass, answer, () -> {
                Map<String, String> got = new TreeMap<>(Objects.requireNonNullElse(answer.getExtFields(), new HashMap<>()));
                // Stock clients add this one by hand to every query; it is in no class.
                got.remove(MixAll.UNIQUE_MSG_QUERY_FLAG);
                Expect.equal("fields", fieldsOf(header), got);
                Expect.equal("fields as read here", fieldsOf(header), fieldsOf(Peer.header(answer, headerClass)));
            });
        }
        return tally.sum();
    }

    private static Map<String, String> fieldsOf(CommandCustomHeader header) {
        RemotingCommand command = RemotingCommand.createRequestCommand(0, header);
        command.makeCustomHeaderToNet();
        return new TreeMap<>(command.getExtFields());
    }

    private static String bodies(Peer peer) throws Exception {
        Tally tally = new Tally();
        int sameBytes = 0;
        for (Class<? extends RemotingSerializable> bodyClass : classesOf(RemotingSerializable.class)) {
            RemotingSerializable body = new Samples(true).body(bodyClass);
            RemotingCommand request = RemotingCommand.createRequestCommand(GET_NAMESRV_CONFIG, null);
            request.setRemark(bodyClass.getSimpleName());
            request.setBody(body.encode());
            RemotingCommand answer = peer.call(request, Peer.TIMEOUT_MS);
            tally.take(bodyClass, answer, () -> {
                RemotingSerializable read = RemotingSerializable.decode(answer.getBody(), bodyClass);
                Expect.equal("members", sorted(JSON.parse(body.toJson())), sorted(JSON.parse(read.toJson())));
            });
            if (Arrays.equals(body.encode(), answer.getBody())) {
                sameBytes++;
            }
        }
        return tally.sum() + ", " + sameBytes + " with the same bytes";
    }

    /** JSON as text in an order that depends on nothing but its content: Java's sets have none. */
    private static String sorted(Object json) {
        if (json instanceof Map<?, ?> map) {
            Map<String, String> members = new TreeMap<>();
            map.forEach((key, value) -> members.put(sorted(key), sorted(value)));
            return members.toString();
        }
        if (json instanceof List<?> list) {
            return list.stream().map(ShapeCases::sorted).sorted().toList().toString();
        }
        return String.valueOf(json);
    }

    /** Concrete subclasses in the jar that holds the request codes, by name. */
    private static <T> List<Class<? extends T>> classesOf(Class<T> parent) throws Exception {
        URI jar = RequestCode.class.getProtectionDomain().getCodeSource().getLocation().toURI();
        Map<String, Class<? extends T>> found = new TreeMap<>();
        try (JarFile entries = new JarFile(new File(jar))) {
            for (String name : entries.stream().map(entry -> entry.getName()).toList()) {
                if (name.startsWith("org/apache/rocketmq/common/") && name.endsWith(".class")) {
                    Class<?> each = Class.forName(name.replace('/', '.').replace(".class", ""), false,
                        ShapeCases.class.getClassLoader());
                    if (parent.isAssignableFrom(each) && !Modifier.isAbstract(each.getModifiers())) {
                        found.put(each.getSimpleName(), each.asSubclass(parent));
                    }
                }
            }
        }
        Expect.that("classes in the jar", found.size() > 30);
        return new ArrayList<>(found.values());
    }

    /** How many classes agreed, and all that did not. */
    private static final class Tally {
        private final List<String> unused = new ArrayList<>();
        private final List<String> wrong = new ArrayList<>();
        private int right;

        void take(Class<?> shape, RemotingCommand answer, Expect.Call comparison) {
            if (UNUSED.equals(answer.getRemark())) {
                unused.add(shape.getSimpleName());
                return;
            }
            try {
                Peer.succeeded(answer);
                comparison.run();
                right++;
            } catch (Exception | AssertionError failure) {
                wrong.add(shape.getSimpleName() + ": " + failure.getMessage());
            }
        }

        String sum() {
            Expect.equal("classes that differ", List.of(), wrong);
            return right + " classes agree, not used by 4.9.8: " + unused;
        }
    }

    private ShapeCases() {
    }
}
