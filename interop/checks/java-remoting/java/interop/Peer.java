package interop;

import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.remoting.ChannelEventListener;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The server under test, as a stock client sees it. */
final class Peer implements AutoCloseable {
    static final long TIMEOUT_MS = 10_000;

    final String address;
    final NettyRemotingClient client;
    /** Answers that match no request. */
    final Queue<RemotingCommand> strays = new ConcurrentLinkedQueue<>();
    /** Connections in the order they were made. */
    final List<Channel> connections = new CopyOnWriteArrayList<>();

    Peer(String address) {
        this.address = address;
        this.client = new WatchfulClient();
        this.client.start();
    }

    RemotingCommand call(int code, CommandCustomHeader header, byte[] body) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, header);
        request.setBody(body);
        return call(request, TIMEOUT_MS);
    }

    RemotingCommand call(RemotingCommand request, long timeoutMs) throws Exception {
        return client.invokeSync(address, request, timeoutMs);
    }

    /** The answer to come; null where the client gave up waiting for it. */
    CompletableFuture<RemotingCommand> start(int code, CommandCustomHeader header, byte[] body, long timeoutMs)
        throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, header);
        request.setBody(body);
        CompletableFuture<RemotingCommand> answer = new CompletableFuture<>();
        client.invokeAsync(address, request, timeoutMs, future -> {
            if (!answer.complete(future.getResponseCommand())) {
                strays.add(future.getResponseCommand());
            }
        });
        return answer;
    }

    void oneway(int code, CommandCustomHeader header) throws Exception {
        client.invokeOneway(address, RemotingCommand.createRequestCommand(code, header), TIMEOUT_MS);
    }

    /** Waits until the connection in use has ended; false if it is still there in the end. */
    boolean awaitClosed(long timeoutMs) throws InterruptedException {
        return latest() != null && latest().closeFuture().await(timeoutMs);
    }

    private Channel latest() {
        return connections.isEmpty() ? null : connections.get(connections.size() - 1);
    }

    static RemotingCommand await(CompletableFuture<RemotingCommand> answer) throws Exception {
        try {
            return answer.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            throw new AssertionError("no answer within " + TIMEOUT_MS + " ms");
        }
    }

    static <H extends CommandCustomHeader> H header(RemotingCommand command, Class<H> headerClass) throws Exception {
        return headerClass.cast(command.decodeCommandCustomHeader(headerClass));
    }

    static void succeeded(RemotingCommand answer) {
        Expect.that("an answer", answer != null);
        Expect.equal("code (" + answer.getRemark() + ")", 0, answer.getCode());
    }

    private static NettyClientConfig settings() {
        NettyClientConfig settings = new NettyClientConfig();
        // Stock producers and consumers hand the property on in the same way.
        settings.setUseTLS(TlsSystemConfig.tlsEnable);
        return settings;
    }

    @Override
    public void close() {
        // Of a connection that is gone already, the stock client takes leave for three seconds.
        if (latest() == null || !latest().closeFuture().isDone()) {
            client.shutdown();
        }
    }

    private final class WatchfulClient extends NettyRemotingClient {
        WatchfulClient() {
            super(settings(), new ConnectionLog());
        }

        @Override
        public void processResponseCommand(ChannelHandlerContext context, RemotingCommand answer) {
            if (!responseTable.containsKey(answer.getOpaque())) {
                strays.add(answer);
            }
            super.processResponseCommand(context, answer);
        }
    }

    private final class ConnectionLog implements ChannelEventListener {
        @Override
        public void onChannelConnect(String remote, Channel channel) {
            connections.add(channel);
        }

        @Override
        public void onChannelClose(String remote, Channel channel) {
        }

        @Override
        public void onChannelException(String remote, Channel channel) {
        }

        @Override
        public void onChannelIdle(String remote, Channel channel) {
        }
    }
}
