package org.tfsparsecap.demo;

/**
 * What can go wrong, or has to be said, each with a sentence in plain words. Names are written into saved
 * state, where resource ids would change with the next version of the app.
 */
enum Problem {
  PHOTO_GONE(R.string.problem_photo_gone),
  PHOTO_DENIED(R.string.problem_photo_denied),
  PHOTO_EMPTY(R.string.problem_photo_empty),
  PHOTO_NOT_A_PICTURE(R.string.problem_photo_not_a_picture),
  PHOTO_OUT_OF_MEMORY(R.string.problem_photo_out_of_memory),
  PHOTO_FROM_BEFORE(R.string.problem_photo_from_before),
  NO_WORDS(R.string.problem_no_words),
  /** Details: how many are shown, how many there were. */
  TOO_MANY_PHOTOS(R.string.problem_too_many_photos),
  NOTHING_SHARED(R.string.problem_nothing_shared),
  NO_PICKER(R.string.problem_no_picker),
  NO_FILE_PICKER(R.string.problem_no_file_picker),
  NO_CAMERA(R.string.problem_no_camera),
  CAMERA_GAVE_NOTHING(R.string.problem_camera_gave_nothing),
  CAMERA_NO_ROOM(R.string.problem_camera_no_room),
  NO_SPEECH_ENGINE(R.string.problem_no_speech_engine),
  NO_VOICE(R.string.problem_no_voice),
  SPEECH_FAILED(R.string.problem_speech_failed),
  NO_SHARE_TARGET(R.string.problem_no_share_target),

  MODEL_NOT_A_MODEL(R.string.problem_model_not_a_model),
  MODEL_CUT_SHORT(R.string.problem_model_cut_short),
  MODEL_NO_DESCRIPTION(R.string.problem_model_no_description),
  MODEL_NEWER_FORMAT(R.string.problem_model_newer_format),
  MODEL_DAMAGED(R.string.problem_model_damaged),
  MODEL_TAKES_FEATURES(R.string.problem_model_takes_features),
  MODEL_NOT_RUNNABLE(R.string.problem_model_not_runnable),
  MODEL_UNREADABLE(R.string.problem_model_unreadable),
  /** Details: how much room is needed, how much there is. */
  MODEL_NO_ROOM(R.string.problem_model_no_room),
  /** Details: how much room there is, for something whose size nobody tells. */
  MODEL_NO_ROOM_FOR_ALL(R.string.problem_model_no_room_for_all),
  MODEL_MISSING(R.string.problem_model_missing),
  NO_RUNTIME(R.string.problem_no_runtime),
  MODEL_KEPT(R.string.problem_model_kept),
  MODEL_FALLBACK(R.string.problem_model_fallback),
  MODEL_OPENED(R.string.problem_model_opened),
  MODEL_INTERRUPTED(R.string.problem_model_interrupted),

  OUT_OF_MEMORY(R.string.problem_out_of_memory),
  /** Details: what was thrown. */
  UNEXPECTED(R.string.problem_unexpected);

  private final int text;

  Problem(int text) {
    this.text = text;
  }

  /** The string resource; its placeholders take the details that the constant names. */
  int text() {
    return text;
  }
}
