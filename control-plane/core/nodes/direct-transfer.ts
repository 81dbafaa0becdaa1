/**
 * The files of a call whose bytes do not pass here: where the node finds them, where it may put
 * what it made of them, and whether that is there. Its calls come in this order, each once at most;
 * what they reject with is our own storage's fault.
 */
import type { DirectInput, ResultPlace } from '#gen/matting/v1/matte_service.ts';

export interface DirectTransfer {
  /** Of the storage, as the node lists it. */
  readonly origin: string;
  /**
   * When the node has admitted the image. STORAGE_UNREACHABLE: it lies where nothing is signed for.
   */
  refer(): Promise<DirectInput>;
  /** When the node has said what it made: a place for exactly these bytes. */
  place(result: { readonly bytes: number; readonly sha256: string }): Promise<ResultPlace>;
  /**
   * When the node has said that they are there. What is wrong with what the storage has; undefined:
   * it is what was placed, of the format asked for and of that size.
   */
  verify(announced: {
    readonly width: number;
    readonly height: number;
  }): Promise<string | undefined>;
}
