package org.tfsparsecap.demo;

import android.content.Context;
import android.graphics.Bitmap;
import android.net.Uri;
import java.io.File;
import java.io.IOException;
import org.tfsparsecap.captioner.BundleException;
import org.tfsparsecap.captioner.Captioner;
import org.tfsparsecap.captioner.CaptionerBundle;
import org.tfsparsecap.captioner.Captioning;
import org.tfsparsecap.captioner.PhotoException;
import org.tfsparsecap.captioner.PhotoReader;

/** The real engine: TensorFlow Lite. */
final class LiteEngine implements Engine {
  private final Context context;
  // One picture at a time, whoever asks: two would slow each other down, and times are compared.
  private final Object turn = new Object();

  LiteEngine(Context context) {
    this.context = context.getApplicationContext();
  }

  @Override
  public Model openBuiltIn(ModelChoice choice) throws BundleException, IOException {
    return new LiteModel(CaptionerBundle.fromAsset(context.getAssets(), choice.fileName()), turn);
  }

  @Override
  public Model open(File bundle) throws BundleException, IOException {
    return new LiteModel(CaptionerBundle.fromFile(bundle), turn);
  }

  @Override
  public Bitmap read(Uri photo, int side) throws PhotoException {
    return PhotoReader.read(context.getContentResolver(), photo, side);
  }

  private static final class LiteModel implements Model {
    private final Captioner captioner;
    private final ModelFacts facts;
    private final Object turn;

    LiteModel(CaptionerBundle bundle, Object turn) throws BundleException {
      // Half of the cores: the small ones of a phone only slow the large ones down.
      int threads = Math.max(1, Math.min(4, Runtime.getRuntime().availableProcessors() / 2));
      captioner = new Captioner(bundle, threads);
      facts = ModelFacts.of(bundle);
      this.turn = turn;
    }

    @Override
    public ModelFacts facts() {
      return facts;
    }

    @Override
    public Captioning caption(Bitmap picture) throws BundleException {
      synchronized (turn) {
        return captioner.caption(picture);
      }
    }

    @Override
    public void close() {
      captioner.close();
    }
  }
}
