package org.tfsparsecap.captioner;

import android.content.ContentResolver;
import android.graphics.Bitmap;
import android.net.Uri;
import android.os.CancellationSignal;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Captions images in the background. Nothing blocks, so it is made for the main thread; it may be
 * used from any thread.
 *
 * <pre>{@code
 * AsyncCaptioner captioner =
 *     new AsyncCaptioner(() -> new Captioner(CaptionerBundle.fromAsset(getAssets(), "sparse.tflite"), 2));
 * CompletableFuture<CaptioningResult> running = captioner.caption(getContentResolver(), photo);
 * running.whenCompleteAsync((found, problem) -> show(found, problem), this::runOnUiThread);
 * running.cancel(true); // when the user leaves
 * }</pre>
 */
public final class AsyncCaptioner implements AutoCloseable {
  private static final int IDLE_SECONDS = 10;
  private static final String THREAD = "captioner";

  /** Reads the image of a task in the background. */
  private interface Source {
    /** @param side side length of the captioner's input, in pixels. */
    Bitmap read(int side) throws Exception;
  }

  private final Callable<Captioner> opener;
  private final Executor executor;
  private final List<Task> tasks = new ArrayList<>();
  /** Null until it is needed. */
  private Captioner captioner;
  private boolean closed;

  /**
   * Creates a captioner with a thread of its own, which ends when it has nothing to do.
   *
   * @param opener opens the captioner; called in the background when it is first needed, and again
   *     after a failure. The captioner is closed with this object.
   */
  public AsyncCaptioner(Callable<Captioner> opener) {
    this(opener, thread());
  }

  /**
   * Creates a captioner that uses the threads of the app.
   *
   * @param opener as above.
   * @param executor runs the work. It should be shut down only after {@link #close()}, and drop nothing.
   */
  public AsyncCaptioner(Callable<Captioner> opener, Executor executor) {
    this.opener = opener;
    this.executor = executor;
  }

  private static Executor thread() {
    ThreadPoolExecutor thread =
        new ThreadPoolExecutor(
            1, 1, IDLE_SECONDS, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), work -> new Thread(work, THREAD));
    thread.allowCoreThreadTimeOut(true);
    return thread;
  }

  /**
   * Captions an image.
   *
   * @param upright as in {@link Captioner#caption(Bitmap)}.
   * @return the captions. {@link CompletableFuture#cancel} drops the image if its turn has not come,
   *     and otherwise stops the graph after the operation that is running. It fails with what the
   *     opener throws and with {@link BundleException}.
   * @throws IllegalStateException this captioner is closed.
   * @throws RejectedExecutionException the executor of the app refuses the work, such as after its
   *     shutdown.
   */
  public CompletableFuture<CaptioningResult> caption(Bitmap upright) {
    return submit(side -> upright);
  }

  /**
   * Reads and captions a photo.
   *
   * @param resolver the app's content resolver.
   * @param photo as in {@link PhotoReader#read}.
   * @return as above; it also fails with {@link PhotoException}.
   * @throws IllegalStateException this captioner is closed.
   * @throws RejectedExecutionException as above.
   */
  public CompletableFuture<CaptioningResult> caption(ContentResolver resolver, Uri photo) {
    return submit(side -> PhotoReader.read(resolver, photo, side));
  }

  /** Called with the lock of the tasks. */
  private void checkOpen() {
    if (closed) {
      throw new IllegalStateException("this captioner is closed");
    }
  }

  private CompletableFuture<CaptioningResult> submit(Source source) {
    Task task = new Task(source);
    synchronized (tasks) {
      checkOpen();
      tasks.add(task);
    }
    try {
      executor.execute(task);
    } catch (RuntimeException | Error refused) {
      forget(task);
      throw refused;
    }
    return task;
  }

  private void forget(Task task) {
    synchronized (tasks) {
      tasks.remove(task);
    }
  }

  /**
   * Cancels all captions and frees the native memory in the background, on a new thread if the executor
   * of the app refuses the work. May be called more than once.
   */
  @Override
  public void close() {
    List<Task> left;
    synchronized (tasks) {
      closed = true;
      left = new ArrayList<>(tasks);
    }
    for (Task task : left) {
      task.cancel(true);
    }
    try {
      executor.execute(this::free);
    } catch (RejectedExecutionException refused) {
      new Thread(this::free, THREAD).start();
    }
  }

  /** Opens nothing after {@link #close()}: what is opened before, {@link #free()} finds, as it waits for the lock. */
  private synchronized Captioner opened() throws Exception {
    synchronized (tasks) {
      checkOpen();
    }
    if (captioner == null) {
      captioner = opener.call();
    }
    return captioner;
  }

  private synchronized void free() {
    if (captioner != null) {
      captioner.close();
    }
  }

  /** The caption of one image. */
  private final class Task extends CompletableFuture<CaptioningResult> implements Runnable {
    private final Source source;
    private final CancellationSignal cancellation = new CancellationSignal();

    Task(Source source) {
      this.source = source;
    }

    @Override
    public void run() {
      try {
        if (!isDone()) {
          Captioner ready = opened();
          complete(ready.caption(source.read(ready.bundle().description().imageSize()), cancellation));
        }
      } catch (Throwable thrown) {
        completeExceptionally(thrown); // without effect if it is cancelled
      } finally {
        forget(this);
      }
    }

    @Override
    public boolean cancel(boolean mayInterruptIfRunning) {
      boolean cancelled = super.cancel(mayInterruptIfRunning);
      cancellation.cancel();
      return cancelled;
    }
  }
}
