package org.tfsparsecap.demo;

import java.io.File;
import java.util.EnumSet;
import java.util.Set;
import java.util.function.Consumer;
import java.util.ArrayList;
import java.util.List;

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
    boolean silent = true;

    @Override
    public void speak(String text, Consumer<Problem> trouble) {
      said.add(text);
      silent = false;
    }

    @Override
    public void stop() {
      silent = true;
    }

    @Override
    public void close() {
      silent = true;
    }
  }
}
