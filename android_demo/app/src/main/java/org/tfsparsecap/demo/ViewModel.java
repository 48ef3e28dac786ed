package org.tfsparsecap.demo;

import java.util.concurrent.Callable;
import java.util.function.Consumer;

/**
 * What a screen shows and does, without any view: it outlives its activity when the phone is turned.
 *
 * <p>Used on the main thread; what takes time runs on one background thread, one piece of work at a time. What
 * is done next follows from the state alone, so work that nobody wants any more is never begun.
 *
 * @param <S> all that the screen shows; immutable.
 */
abstract class ViewModel<S extends ViewModel.State<S>> {
  /** What every screen shows. */
  interface State<S> {
    /** With a sentence in the card for notices; null for none. */
    S withNotice(Sentence notice);
  }

  private final Worker worker;
  private Consumer<S> screen;
  private S state;
  private boolean busy;
  private boolean closed;

  /** @param thread name of the background thread. */
  ViewModel(String thread, S state) {
    worker = new Worker(thread);
    this.state = state;
  }

  /** Gives every state from now on, beginning with the present one, to a screen; null for none. */
  final void attach(Consumer<S> screen) {
    this.screen = screen;
    if (screen != null) {
      screen.accept(state);
    }
  }

  /** The present state. */
  final S state() {
    return state;
  }

  /** Says something that is not about one photo or one model. */
  final void notice(Problem problem) {
    set(state.withNotice(Sentence.of(problem)));
  }

  /** The person has read the notice. */
  final void dismissNotice() {
    set(state.withNotice(null));
  }

  /** Begins what the state calls for next; called only while nothing is under way. */
  abstract void begin();

  /** Whether somebody looks at the screen. */
  final boolean isShown() {
    return screen != null;
  }

  final void set(S state) {
    this.state = state;
    if (screen != null) {
      screen.accept(state);
    }
  }

  /** Begins what is to be done next, if nothing is under way. */
  final void work() {
    if (!busy && !closed) {
      begin();
    }
  }

  /** Runs a piece of work that {@link #begin} has found, then whatever is to be done after it. */
  final <T> void run(Callable<T> job, Consumer<T> done, Consumer<Throwable> failed) {
    busy = true;
    worker.run(
        job,
        result -> finish(() -> done.accept(result)),
        thrown -> finish(() -> failed.accept(thrown)));
  }

  /** Runs something in the background that no state depends on; where it fails, the notice says so. */
  final void runAside(Runnable job) {
    worker.run(
        () -> {
          job.run();
          return null;
        },
        nothing -> {},
        thrown -> {
          if (!closed) {
            set(state.withNotice(Sentence.of(thrown)));
          }
        });
  }

  /** Takes no more work; what is under way is finished, its result dropped, and something run after it. */
  final void close(Runnable last) {
    closed = true;
    screen = null;
    worker.finish(last);
  }

  private void finish(Runnable end) {
    busy = false;
    if (!closed) {
      end.run();
      work();
    }
  }
}
