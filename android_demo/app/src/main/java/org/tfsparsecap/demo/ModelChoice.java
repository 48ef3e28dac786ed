package org.tfsparsecap.demo;

/** The models that can be chosen. The settings contain these names. */
enum ModelChoice {
  /** Packaged in the APK; most of its weights are zero. */
  SPARSE("sparse.tflite", R.string.model_sparse),
  /** Packaged in the APK if it was built with one: a faster captioner with a smaller encoder. */
  SMALL("small.tflite", R.string.model_small),
  /** Packaged in the APK if it was built with one; all of its weights are stored. */
  DENSE("dense.tflite", R.string.model_dense),
  /** A bundle that the user opened. */
  USER("user.tflite", R.string.model_user);

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

  /** String resource of the displayed name. */
  int title() {
    return title;
  }

  /** Whether the model is packaged in the APK. */
  boolean isBuiltIn() {
    return this != USER;
  }
}
