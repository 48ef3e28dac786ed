package org.tfsparsecap.demo;

import android.content.Context;
import android.graphics.Bitmap;
import android.net.Uri;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.Captioning;
import org.tfsparsecap.captioner.PhotoException;

/** The real engine with drawn scenes' models in it; counts, and waits or fails where a test says so. */
final class TestEngine implements Engine {
  /** Photos that were captioned, in order, by the last part of their addresses. */
  final List<String> captioned = Collections.synchronizedList(new ArrayList<>());
  /** Files that are used in place of the built-in models. */
  final Map<ModelChoice, File> builtIn = new EnumMap<>(ModelChoice.class);
  /** Thrown when the next picture is captioned. */
  volatile Throwable failure;
  /** Times that are told are left out, as the computer that tests run on is no phone. */
  volatile boolean timed = true;
  /** Finds no words. */
  volatile boolean silent;
  volatile int opened;
  volatile int closed;

  private final LiteEngine real;
  private volatile Semaphore gate;
  private volatile String lastRead = "";

  TestEngine(Context context) {
    real = new LiteEngine(new android.content.ContextWrapper(context) {
      @Override
      public Context getApplicationContext() {
        return getBaseContext();
      }
    });
    builtIn.put(ModelChoice.SPARSE, Samples.model("shapes_sparse"));
    builtIn.put(ModelChoice.DENSE, Samples.model("shapes_dense"));
  }

  /** From now on a picture is captioned only when it is let through. */
  void holdBack() {
    gate = new Semaphore(0);
  }

  /** Lets pictures through. */
  void letThrough(int pictures) {
    gate.release(pictures);
  }

  @Override
  public Model openBuiltIn(ModelChoice choice) throws BundleException, IOException {
    return open(builtIn.get(choice));
  }

  @Override
  public Model open(File bundle) throws BundleException, IOException {
    Model model = real.open(bundle);
    opened++;
    return new Model() {
      @Override
      public ModelFacts facts() {
        return model.facts();
      }

      @Override
      public Captioning caption(Bitmap picture) throws BundleException {
        if (gate != null) {
          gate.acquireUninterruptibly();
        }
        captioned.add(lastRead);
        Throwable thrown = failure;
        failure = null;
        if (thrown instanceof Error) {
          throw (Error) thrown;
        } else if (thrown instanceof BundleException) {
          throw (BundleException) thrown;
        } else if (thrown != null) {
          throw (RuntimeException) thrown;
        }
        Captioning captioning = model.caption(picture);
        return new Captioning(
            silent ? Collections.emptyList() : captioning.captions(),
            timed ? captioning.runMilliseconds() : Float.NaN,
            captioning.totalMilliseconds());
      }

      @Override
      public void close() {
        closed++;
        model.close();
      }
    };
  }

  @Override
  public Bitmap read(Uri photo, int side) throws PhotoException {
    lastRead = photo.getLastPathSegment();
    return real.read(photo, side);
  }
}
