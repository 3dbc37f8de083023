package interop;

import static org.apache.rocketmq.common.protocol.RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE;
import static org.apache.rocketmq.common.protocol.RequestCode.CLEAN_UNUSED_TOPIC;
import static org.apache.rocketmq.common.protocol.RequestCode.QUERY_MESSAGE;
import static org.apache.rocketmq.common.protocol.RequestCode.SEND_MESSAGE_V2;

import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.remoting.exception.RemotingConnectException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Ends of connections. */
final class ClosingCases {
    /** For a server that closes idle connections after a second. */
    static Suite suite() {
        return new Suite()
            .add("server drops a connection, next call works", ClosingCases::dropped)
            .add("idle connection is closed, next call works", ClosingCases::idle);
    }

    /** For a server that stops during the suite. */
    static Suite stoppingSuite() {
        return new Suite()
            .add("stopping server answers what it has taken", ClosingCases::stopping)
            .add("stopped server cannot be reached", ClosingCases::stopped);
    }

    private static String dropped(Peer peer) throws Exception {
        CompletableFuture<RemotingCommand> lost = peer.start(CLEAN_EXPIRED_CONSUMEQUEUE, null, null, 500);
        Expect.that("the connection to be closed", peer.awaitClosed(1_000));
        Peer.succeeded(peer.call(SEND_MESSAGE_V2, CallCases.send("again", 0), null));
        Expect.equal("answer", null, Peer.await(lost));
        return "";
    }

    private static String idle(Peer peer) throws Exception {
        Peer.succeeded(peer.call(SEND_MESSAGE_V2, CallCases.send("before", 0), null));
        long started = System.nanoTime();
        Expect.that("the connection to be closed", peer.awaitClosed(5_000));
        long ms = (System.nanoTime() - started) / 1_000_000;
        Expect.that("a second to pass first, not " + ms + " ms", ms > 900);
        Peer.succeeded(peer.call(SEND_MESSAGE_V2, CallCases.send("after", 0), null));
        return "after " + ms + " ms, limit 1 s";
    }

    private static String stopping(Peer peer) throws Exception {
        CompletableFuture<RemotingCommand> query =
            peer.start(QUERY_MESSAGE, CallCases.query(700), null, Peer.TIMEOUT_MS);
        Peer.succeeded(peer.call(CLEAN_UNUSED_TOPIC, null, null));
        Expect.that("the query to be under way", !query.isDone());
        Peer.succeeded(Peer.await(query));
        Expect.that("the connection to be closed", peer.awaitClosed(2_000));
        return "";
    }

    private static String stopped(Peer peer) throws Exception {
        Expect.fails(RemotingConnectException.class,
            () -> peer.call(SEND_MESSAGE_V2, CallCases.send("too late", 0), null));
        return "";
    }

    private ClosingCases() {
    }
}
