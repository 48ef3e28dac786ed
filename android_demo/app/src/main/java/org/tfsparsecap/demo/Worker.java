package org.tfsparsecap.demo;

import android.os.Handler;
import android.os.Looper;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;

/** One background thread whose results come back on the main thread. Made and used on the main thread. */
final class Worker {
  private final ExecutorService background;
  private final Handler main = new Handler(Looper.getMainLooper());

  /** @param name of the thread, for people who read traces. */
  Worker(String name) {
    background = Executors.newSingleThreadExecutor(work -> new Thread(work, name));
  }

  /**
   * Runs something after what was given before it.
   *
   * @param work runs in the background.
   * @param done gets its result on the main thread.
   * @param failed gets instead whatever was thrown, errors such as a lack of memory included.
   */
  <T> void run(Callable<T> work, Consumer<T> done, Consumer<Throwable> failed) {
    background.execute(
        () -> {
          try {
            T result = work.call();
            main.post(() -> done.accept(result));
          } catch (Throwable thrown) {
            main.post(() -> failed.accept(thrown));
          }
        });
  }

  /** Takes no more work, and runs something last. */
  void finish(Runnable last) {
    background.execute(last);
    background.shutdown();
  }
}
