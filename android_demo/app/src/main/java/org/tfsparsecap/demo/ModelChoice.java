package org.tfsparsecap.demo;

/** The models that there can be. Names are written into the settings. */
enum ModelChoice {
  /** In the APK: most of its weights are zero. */
  SPARSE("sparse.tflite", R.string.model_sparse),
  /** In the APK, where it was built with one: all of its weights. */
  DENSE("dense.tflite", R.string.model_dense),
  /** A bundle that the person has opened. */
  OWN("own.tflite", R.string.model_own);

  private final String fileName;
  private final int title;

  ModelChoice(String fileName, int title) {
    this.fileName = fileName;
    this.title = title;
  }

  /** Name of the asset, or of the file in the app's own folder. */
  String fileName() {
    return fileName;
  }

  /** String resource of what a person calls it. */
  int title() {
    return title;
  }

  /** Whether it comes with the app. */
  boolean isBuiltIn() {
    return this != OWN;
  }
}
