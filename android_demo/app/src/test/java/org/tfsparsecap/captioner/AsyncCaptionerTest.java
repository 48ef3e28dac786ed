package org.tfsparsecap.captioner;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import android.graphics.Bitmap;
import android.os.CancellationSignal;
import android.os.OperationCanceledException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;

/** Captions in the background, and cancelled ones. */
@RunWith(RobolectricTestRunner.class)
public final class AsyncCaptionerTest {
  private final Deque<Runnable> waiting = new ArrayDeque<>();
  private int opened;

  @Test
  public void captionsAreThoseOfTheCaptioner() throws Exception {
    Bitmap image = Fixtures.bitmap("scene_0.png");
    try (Captioner captioner = open();
        AsyncCaptioner background = new AsyncCaptioner(this::open)) {
      CompletableFuture<CaptioningResult> first = background.caption(image);
      CompletableFuture<CaptioningResult> second =
          background.caption(Fixtures.resolver(), Fixtures.offer(Fixtures.bytes("scene_0.png")));
      assertEquals(captioner.caption(image).captions(), first.get(60, TimeUnit.SECONDS).captions());
      assertEquals(first.get().captions(), second.get(60, TimeUnit.SECONDS).captions());
    }
    assertEquals("opened once", 2, opened);
  }

  @Test
  public void cancelledCaptionsNeverRun() throws Exception {
    AsyncCaptioner background = new AsyncCaptioner(this::open, waiting::add);
    CompletableFuture<CaptioningResult> first = background.caption(Fixtures.bitmap("scene_0.png"));
    CompletableFuture<CaptioningResult> second = background.caption(Fixtures.bitmap("scene_1.png"));
    assertTrue(first.cancel(true));
    waiting.poll().run();
    assertEquals(0, opened);
    assertThrows(CancellationException.class, first::get);
    waiting.poll().run();
    assertFalse(second.get().captions().isEmpty());
    CompletableFuture<CaptioningResult> third = background.caption(Fixtures.bitmap("scene_2.png"));
    background.close();
    assertTrue(third.isCancelled());
    assertThrows(IllegalStateException.class, () -> background.caption(Fixtures.bitmap("scene_2.png")));
    waiting.forEach(Runnable::run);
  }

  /** Cancels at different moments: the call fails or its captions are right, and so are the next ones. */
  @Test
  public void graphStopsWhenTheCallIsCancelled() throws Exception {
    CaptionerBundle bundle = CaptionerBundle.fromFile(Fixtures.asset("small.tflite"));
    Bitmap image = Fixtures.bitmap("scene_0.png");
    try (Captioner captioner = new Captioner(bundle, 1)) {
      CaptioningResult expected = captioner.caption(image);
      int cancelled = 0;
      for (int attempt = 0; attempt < 4; attempt++) {
        CancellationSignal signal = new CancellationSignal();
        long delay = (long) (expected.runMilliseconds() * attempt / 5);
        Thread other = new Thread(() -> cancelAfter(delay, signal));
        other.start();
        try {
          assertEquals(expected.captions(), captioner.caption(image, signal).captions());
        } catch (OperationCanceledException stopped) {
          cancelled++;
        }
        other.join();
      }
      assertTrue("cancelled: " + cancelled, cancelled > 0);
      assertEquals(expected.captions(), captioner.caption(image).captions());
    }
  }

  @Test
  public void failuresAreThoseOfTheCaptioner() {
    AsyncCaptioner absent =
        new AsyncCaptioner(
            () -> {
              throw new FileNotFoundException("sparse.tflite");
            },
            Runnable::run);
    assertCause(FileNotFoundException.class, absent.caption(Bitmap.createBitmap(1, 1, Bitmap.Config.ARGB_8888)));
    AsyncCaptioner background = new AsyncCaptioner(this::open, Runnable::run);
    assertCause(
        PhotoException.class, background.caption(Fixtures.resolver(), Fixtures.offer(new byte[] {1, 2, 3})));
    background.close();
  }

  @Test
  public void closesAfterTheExecutorOfTheApp() throws Exception {
    Captioner captioner = open();
    Bitmap image = Fixtures.bitmap("scene_0.png");
    List<Runnable> rejected = new ArrayList<>();
    ThreadPoolExecutor executor =
        new ThreadPoolExecutor(
            1,
            1,
            0,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            (work, pool) -> {
              rejected.add(work);
              throw new RejectedExecutionException();
            });
    AsyncCaptioner background = new AsyncCaptioner(() -> captioner, executor);
    background.caption(image).get(60, TimeUnit.SECONDS);
    executor.shutdown();
    assertThrows(RejectedExecutionException.class, () -> background.caption(image));
    background.close();
    assertFalse("forgotten", ((CompletableFuture<?>) rejected.get(0)).isCancelled());
    await(() -> isClosed(captioner, image), "the native memory to be freed");
  }

  /** The second image waits while the first opens the captioner, which fails. */
  @Test
  public void nothingIsOpenedAfterClose() throws Exception {
    CountDownLatch opening = new CountDownLatch(1);
    CountDownLatch closed = new CountDownLatch(1);
    List<Thread> threads = new ArrayList<>();
    AsyncCaptioner background =
        new AsyncCaptioner(
            () -> {
              opened++;
              opening.countDown();
              closed.await();
              throw new FileNotFoundException("sparse.tflite");
            },
            work -> {
              threads.add(new Thread(work));
              threads.get(threads.size() - 1).start();
            });
    Bitmap image = Fixtures.bitmap("scene_0.png");
    background.caption(image);
    opening.await();
    background.caption(image);
    await(() -> threads.get(1).getState() == Thread.State.BLOCKED, "the second image");
    background.close();
    closed.countDown();
    for (Thread thread : threads) {
      thread.join();
    }
    assertEquals(1, opened);
  }

  private static boolean isClosed(Captioner captioner, Bitmap image) {
    try {
      captioner.caption(image);
      return false;
    } catch (IllegalStateException closed) {
      return true;
    } catch (BundleException error) {
      throw new AssertionError(error);
    }
  }

  private static void await(BooleanSupplier condition, String what) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!condition.getAsBoolean()) {
      assertTrue("no sign of " + what, System.nanoTime() < end);
      Thread.sleep(5);
    }
  }

  private static void assertCause(Class<? extends Exception> expected, CompletableFuture<?> failed) {
    ExecutionException thrown = assertThrows(ExecutionException.class, failed::get);
    assertEquals(expected, thrown.getCause().getClass());
  }

  private static void cancelAfter(long milliseconds, CancellationSignal signal) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException stopped) {
      throw new AssertionError(stopped);
    }
    signal.cancel();
  }

  private Captioner open() throws BundleException, IOException {
    opened++;
    return new Captioner(CaptionerBundle.fromFile(Fixtures.file("objects.tflite")), 1);
  }
}
