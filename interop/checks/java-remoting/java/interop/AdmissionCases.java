package interop;

import static org.apache.rocketmq.common.protocol.RequestCode.SEND_MESSAGE_V2;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.exception.RemotingSendRequestException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Whether a server and a client with given TLS settings come together. */
final class AdmissionCases {
    /** For settings under which everything must work. */
    static Suite admitted() {
        return new Suite()
            .add("request answered", AdmissionCases::answered)
            .add("4 MiB body there and back", AdmissionCases::largeBody)
            .add("500 pipelined", AdmissionCases::pipelined);
    }

    /** One request only. */
    static Suite oneAnswered() {
        return new Suite().add("request answered", AdmissionCases::answered);
    }

    /** For settings under which nothing may get through. */
    static Suite turnedAway() {
        return new Suite().add("no request gets through", AdmissionCases::refused);
    }

    /** For settings under which RocketMQ's own tests demand this exception. */
    static Suite sendRefused() {
        return new Suite().add("RemotingSendRequestException", AdmissionCases::sendRefused);
    }

    private static String sendRefused(Peer peer) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(SEND_MESSAGE_V2, CallCases.send("topic", 0));
        Expect.fails(RemotingSendRequestException.class, () -> peer.call(request, 5_000));
        return "";
    }

    private static String answered(Peer peer) throws Exception {
        Peer.succeeded(peer.call(SEND_MESSAGE_V2, CallCases.send("topic", 0), CallCases.randomBytes(100)));
        return "";
    }

    private static String largeBody(Peer peer) throws Exception {
        byte[] body = CallCases.randomBytes(4 * 1024 * 1024);
        RemotingCommand answer = peer.call(SEND_MESSAGE_V2, CallCases.send("topic", 0), body);
        Expect.that("the same body", Arrays.equals(body, answer.getBody()));
        return "";
    }

    private static String pipelined(Peer peer) throws Exception {
        List<CompletableFuture<RemotingCommand>> answers = new ArrayList<>();
        for (int number = 0; number < 500; number++) {
            byte[] body = CallCases.randomBytes(1_024);
            answers.add(peer.start(SEND_MESSAGE_V2, CallCases.send("topic", number), body, Peer.TIMEOUT_MS));
        }
        for (CompletableFuture<RemotingCommand> answer : answers) {
            Peer.succeeded(Peer.await(answer));
        }
        return "";
    }

    private static String refused(Peer peer) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(SEND_MESSAGE_V2, CallCases.send("topic", 0));
        RemotingException failure = Expect.fails(RemotingException.class, () -> peer.call(request, 2_000));
        return failure.getClass().getSimpleName();
    }

    private AdmissionCases() {
    }
}
