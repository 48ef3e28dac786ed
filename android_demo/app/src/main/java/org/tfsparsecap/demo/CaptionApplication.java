package org.tfsparsecap.demo;

import android.app.Application;
import android.content.Context;
import android.content.SharedPreferences;
import android.util.Log;
import java.io.File;
import java.io.IOException;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;

/** Makes what the screens share. Tests put something else in its place. */
public class CaptionApplication extends Application {
  private static final String TAG = "CaptionApplication";

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
      models = new ModelStore(this, engine(), builtInModels(), settings(), this::freeBytes);
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

  /** The models that were packed into the APK. */
  Set<ModelChoice> builtInModels() {
    Set<ModelChoice> models = EnumSet.noneOf(ModelChoice.class);
    try {
      List<String> assets = Arrays.asList(getAssets().list(""));
      for (ModelChoice choice : ModelChoice.values()) {
        if (choice.isBuiltIn() && assets.contains(choice.fileName())) {
          models.add(choice);
        }
      }
    } catch (IOException broken) {
      Log.e(TAG, "the APK cannot be read", broken); // the screens say that there is no model
    }
    return models;
  }

  Voice makeVoice() {
    return new SpeechVoice(this);
  }

  long freeBytes(File folder) {
    return folder.getUsableSpace();
  }
}
