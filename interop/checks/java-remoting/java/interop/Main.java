package interop;

import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Runs one suite of cases with the stock remoting client against a server.
 *
 * Usage: Main SUITE HOST:PORT. Prints one line per case, tab-separated: case, pass or FAIL,
 * milliseconds, name, detail. The last line is "end". How the client dials and serializes is set
 * by the stock system properties (rocketmq.serialize.type, tls.enable ...).
 */
public final class Main {
    public static void main(String[] args) {
        // Stock clients announce their version in the same way.
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        Suite suite = switch (args[0]) {
            case "calls" -> CallCases.suite();
            case "shapes" -> ShapeCases.suite();
            case "callbacks" -> CallbackCases.suite();
            case "closing" -> ClosingCases.suite();
            case "stopping" -> ClosingCases.stoppingSuite();
            case "admitted" -> AdmissionCases.admitted();
            case "answered" -> AdmissionCases.oneAnswered();
            case "send-refused" -> AdmissionCases.sendRefused();
            case "turned-away" -> AdmissionCases.turnedAway();
            default -> throw new IllegalArgumentException("no suite " + args[0]);
        };
        try (Peer peer = new Peer(args[1])) {
            suite.run(peer);
        }
        System.out.println("end");
        // Netty's threads take seconds to retire; nothing is left for them to do.
        System.exit(0);
    }

    private Main() {
    }
}
