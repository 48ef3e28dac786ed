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

/** Creates the objects that the screens share. Tests override it. */
public class CaptionApplication extends Application {
  private static final String TAG = "CaptionApplication";

  private Engine engine;
  private ModelStore models;

  /** Returns the application of any context. */
  static CaptionApplication of(Context context) {
    return (CaptionApplication) context.getApplicationContext();
  }

  /** The engine that captions photos. */
  final Engine engine() {
    if (engine == null) {
      engine = createEngine();
    }
    return engine;
  }

  /** The available models. */
  final ModelStore models() {
    if (models == null) {
      models = new ModelStore(this, engine(), builtInModels(), settings(), this::freeBytes);
    }
    return models;
  }

  /** Settings that persist. */
  final SharedPreferences settings() {
    return getSharedPreferences("settings", MODE_PRIVATE);
  }

  Engine createEngine() {
    return new TFLiteEngine(this);
  }

  /** The models packaged in the APK. */
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
      Log.e(TAG, "the APK cannot be read", broken); // the screens report that there is no model
    }
    return models;
  }

  Speaker createSpeaker() {
    return new TtsSpeaker(this);
  }

  FrameSource createCamera() {
    return new CameraFrames(this);
  }

  long freeBytes(File folder) {
    return folder.getUsableSpace();
  }
}
