package org.tfsparsecap.demo;

import java.io.File;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;

/** The app with small captioners of drawn scenes and a recording speaker. */
public class TestApplication extends CaptionApplication {
  final TestEngine engine = new TestEngine(this);
  final TestSpeaker speaker = new TestSpeaker();
  final TestCamera camera = new TestCamera();
  Set<ModelChoice> builtIn = EnumSet.of(ModelChoice.SPARSE, ModelChoice.DENSE);
  long freeBytes = Long.MAX_VALUE;

  @Override
  Engine createEngine() {
    return engine;
  }

  @Override
  Set<ModelChoice> builtInModels() {
    return builtIn;
  }

  @Override
  Speaker createSpeaker() {
    return speaker;
  }

  @Override
  FrameSource createCamera() {
    return camera;
  }

  @Override
  long freeBytes(File folder) {
    return freeBytes;
  }

  /** A camera that shows recorded frames. */
  static final class TestCamera implements FrameSource {
    /** Null while the camera is stopped. */
    Listener listener;

    int starts;

    @Override
    public void start(Listener listener) {
      this.listener = listener;
      starts++;
    }

    @Override
    public void stop() {
      listener = null;
    }
  }

  /** Records the texts to read aloud. */
  static final class TestSpeaker implements Speaker {
    final List<String> spoken = new ArrayList<>();

    @Override
    public void speak(String text, Consumer<Problem> onProblem) {
      spoken.add(text);
    }

    @Override
    public void stop() {}

    @Override
    public void close() {}
  }
}
