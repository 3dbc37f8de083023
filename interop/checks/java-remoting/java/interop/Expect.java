package interop;

import java.util.Objects;

/** What a case demands. */
final class Expect {
    interface Call {
        void run() throws Exception;
    }

    static void equal(String what, Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) {
            throw new AssertionError(what + ": expected <" + wanted + ">, got <" + got + ">");
        }
    }

    static void that(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError("expected " + what);
        }
    }

    static <E extends Exception> E fails(Class<E> wanted, Call call) throws Exception {
        try {
            call.run();
        } catch (Exception failure) {
            if (wanted.isInstance(failure)) {
                return wanted.cast(failure);
            }
            throw failure;
        }
        throw new AssertionError("expected " + wanted.getSimpleName() + ", but the call succeeded");
    }

    private Expect() {
    }
}
