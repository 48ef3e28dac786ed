package org.tfsparsecap.demo;

import android.os.Handler;
import android.os.Looper;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;

/**
 * One background thread that delivers results on the main thread. Created and used on the main
 * thread.
 */
final class Worker {
  private final ExecutorService background;
  private final Handler main = new Handler(Looper.getMainLooper());

  /** @param name name of the thread. */
  Worker(String name) {
    background = Executors.newSingleThreadExecutor(work -> new Thread(work, name));
  }

  /**
   * Runs a task after all earlier ones.
   *
   * @param work runs in the background.
   * @param done receives the result on the main thread.
   * @param failed receives any exception or error instead, including OutOfMemoryError.
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

  /** Accepts no more tasks, and runs a last one. */
  void finish(Runnable last) {
    background.execute(last);
    background.shutdown();
  }
}
