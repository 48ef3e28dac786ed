package org.tfsparsecap.demo;

import java.io.File;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;

/** The app around small captioners of drawn scenes, with a voice that is written down. */
public class TestApplication extends CaptionApplication {
  final TestEngine engine = new TestEngine(this);
  final TestVoice voice = new TestVoice();
  Set<ModelChoice> builtIn = EnumSet.of(ModelChoice.SPARSE, ModelChoice.DENSE);
  long freeBytes = Long.MAX_VALUE;

  @Override
  Engine makeEngine() {
    return engine;
  }

  @Override
  Set<ModelChoice> builtInModels() {
    return builtIn;
  }

  @Override
  Voice makeVoice() {
    return voice;
  }

  @Override
  long freeBytes(File folder) {
    return freeBytes;
  }

  /** Writes down what it should say. */
  static final class TestVoice implements Voice {
    final List<String> said = new ArrayList<>();

    @Override
    public void speak(String text, Consumer<Problem> trouble) {
      said.add(text);
    }

    @Override
    public void stop() {}

    @Override
    public void close() {}
  }
}
