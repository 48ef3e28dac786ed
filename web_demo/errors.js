/** A bundle or a photograph cannot be used; the message is one sentence that says why, and what to do. */
export class CaptionerError extends Error {
  /**
   * @param {string} message
   * @param {unknown} [cause] What was thrown, for developers.
   */
  constructor(message, cause) {
    super(message, { cause });
    this.name = "CaptionerError";
  }
}
