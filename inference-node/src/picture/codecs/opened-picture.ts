/** What a codec knows about a file before its pixels are read. */
import type { RgbaPicture } from '../rgba-picture.ts';
import type { Size } from '../size.ts';

/** The size is oriented. */
export interface OpenedPicture extends Size {
  /**
   * Reads every pixel, once.
   * @throws ContractError PROCESSING_FAILED, NODE_INCAPABLE
   */
  readPixels(): Promise<Pick<RgbaPicture, 'rgba' | 'translucent'>>;
}
