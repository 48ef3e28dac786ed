package org.tfsparsecap.demo;

import android.app.Application;
import android.content.Context;
import android.content.SharedPreferences;
import java.io.File;

/** Makes what the screens share. Tests put something else in its place. */
public class CaptionApplication extends Application {
  private Engine engine;
  private ModelStore models;

  /** The application behind any context. */
  static CaptionApplication of(Context context) {
    return (CaptionApplication) context.getApplicationContext();
  }

  /** What captions photos. */
  final Engine engine() {
    if (engine == null) {
      engine = makeEngine();
    }
    return engine;
  }

  /** The models that there are. */
  final ModelStore models() {
    if (models == null) {
      models = new ModelStore(this, engine(), settings(), this::freeBytes);
    }
    return models;
  }

  /** What is remembered. */
  final SharedPreferences settings() {
    return getSharedPreferences("settings", MODE_PRIVATE);
  }

  Engine makeEngine() {
    return new LiteEngine(this);
  }

  Voice makeVoice() {
    return new SpeechVoice(this);
  }

  long freeBytes(File folder) {
    return folder.getUsableSpace();
  }
}
