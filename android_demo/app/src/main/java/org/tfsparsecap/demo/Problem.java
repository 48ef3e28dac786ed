package org.tfsparsecap.demo;

/**
 * Problems and other messages for the user, each with a string resource. Saved state contains the
 * names, because resource ids change between versions of the app.
 */
enum Problem {
  PHOTO_GONE(R.string.problem_photo_gone),
  PHOTO_DENIED(R.string.problem_photo_denied),
  PHOTO_EMPTY(R.string.problem_photo_empty),
  PHOTO_NOT_AN_IMAGE(R.string.problem_photo_not_an_image),
  PHOTO_OUT_OF_MEMORY(R.string.problem_photo_out_of_memory),
  EARLIER_CAPTION(R.string.problem_earlier_caption),
  NO_CAPTION(R.string.problem_no_caption),
  /** Arguments: number of photos shown, number chosen. */
  TOO_MANY_PHOTOS(R.string.problem_too_many_photos),
  NOTHING_SHARED(R.string.problem_nothing_shared),
  NO_PICKER(R.string.problem_no_picker),
  NO_FILE_PICKER(R.string.problem_no_file_picker),
  NO_CAMERA(R.string.problem_no_camera),
  NO_CAMERA_DEVICE(R.string.problem_no_camera_device),
  CAMERA_REFUSED(R.string.problem_camera_refused),
  CAMERA_IN_USE(R.string.problem_camera_in_use),
  CAMERA_DISABLED(R.string.problem_camera_disabled),
  CAMERA_FAILED(R.string.problem_camera_failed),
  CAMERA_NO_PHOTO(R.string.problem_camera_no_photo),
  CAMERA_NO_STORAGE(R.string.problem_camera_no_storage),
  NO_SPEECH_ENGINE(R.string.problem_no_speech_engine),
  NO_VOICE(R.string.problem_no_voice),
  SPEECH_FAILED(R.string.problem_speech_failed),
  NO_SHARE_TARGET(R.string.problem_no_share_target),

  MODEL_NOT_A_MODEL(R.string.problem_model_not_a_model),
  MODEL_TRUNCATED(R.string.problem_model_truncated),
  MODEL_NO_DESCRIPTION(R.string.problem_model_no_description),
  MODEL_NEWER_FORMAT(R.string.problem_model_newer_format),
  MODEL_DAMAGED(R.string.problem_model_damaged),
  MODEL_CHANGED(R.string.problem_model_changed),
  MODEL_TAKES_FEATURES(R.string.problem_model_takes_features),
  MODEL_NOT_RUNNABLE(R.string.problem_model_not_runnable),
  MODEL_UNREADABLE(R.string.problem_model_unreadable),
  /** Arguments: required and available storage. */
  MODEL_NO_STORAGE(R.string.problem_model_no_storage),
  /** Argument: available storage. */
  MODEL_NO_STORAGE_SIZE_UNKNOWN(R.string.problem_model_no_storage_size_unknown),
  MODEL_MISSING(R.string.problem_model_missing),
  NO_RUNTIME(R.string.problem_no_runtime),
  MODEL_KEPT(R.string.problem_model_kept),
  MODEL_FALLBACK(R.string.problem_model_fallback),
  MODEL_OPENED(R.string.problem_model_opened),
  MODEL_INTERRUPTED(R.string.problem_model_interrupted),

  OUT_OF_MEMORY(R.string.problem_out_of_memory),
  /** Argument: class of the exception. */
  UNEXPECTED(R.string.problem_unexpected);

  private final int text;

  Problem(int text) {
    this.text = text;
  }

  /** The string resource; its placeholders take the arguments documented at the constant. */
  int text() {
    return text;
  }
}
