package interop;

import java.nio.file.Path;

/**
 * Does things with the stock client, as told by files.
 *
 * Usage: Main NAMESERVER (COMMAND INPUT OUTPUT)... Each command reads a file with one JSON object per
 * line and writes another. What goes wrong is printed, and the exit code is 1.
 */
public final class Main {
    public static void main(String[] args) {
        int code = 0;
        try (Peer peer = new Peer(args[0])) {
            for (int at = 1; at < args.length; at += 3) {
                try (Lines lines = new Lines(Path.of(args[at + 1]), Path.of(args[at + 2]))) {
                    run(args[at], peer, lines);
                }
            }
        } catch (Exception failure) {
            failure.printStackTrace(System.out);
            code = 1;
        }
        // Netty's threads take seconds to retire; nothing is left for them to do.
        System.out.flush();
        Runtime.getRuntime().halt(code);
    }

    private static void run(String command, Peer peer, Lines lines) throws Exception {
        switch (command) {
            case "read" -> Reading.read(peer, lines);
            case "ask" -> Asking.ask(peer, lines);
            case "wait" -> Asking.await(peer, lines);
            case "send" -> Sending.send(peer, lines);
            case "send-until-it-fails" -> Sending.sendUntilItFails(peer, lines);
            default -> throw new IllegalArgumentException("no command " + command);
        }
    }

    private Main() {
    }
}
