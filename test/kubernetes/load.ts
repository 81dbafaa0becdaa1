/** Callers that cut pictures out one after the other, by the client and so as docs/rest.md says. */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import sharp from 'sharp';
import { MattingClient } from '../../client/src/index.ts';
import { encode, pictureOf } from '../chaos/manners.ts';

const POLL_MS = 50;

export class Load {
  readonly #client: MattingClient;
  readonly #done: readonly Promise<void>[];
  #going = true;
  #number = 0;
  /** Pictures that came back, whole. */
  images = 0;
  /** Tries after the first: what a caller notices who does not retry. */
  retries = 0;

  constructor(baseUrl: string, apiKey: string, callers: number) {
    this.#client = new MattingClient({ baseUrl, apiKey });
    this.#done = Array.from({ length: callers }, () => this.#call());
    // Looked at when the load is over; a failure before is none of the runtime's business.
    for (const done of this.#done) done.catch(() => undefined);
  }

  /** Resolves when so many more are done. Rejects with the first failure. */
  async more(images: number): Promise<void> {
    const wanted = this.images + images;
    while (this.images < wanted) await Promise.race([delay(POLL_MS), Promise.all(this.#done)]);
  }

  /** Rejects with the first failure. */
  async finish(): Promise<void> {
    this.#going = false;
    await Promise.all(this.#done);
  }

  async #call(): Promise<void> {
    while (this.#going) {
      const picture = pictureOf(this.#number++);
      const onRetry = () => {
        this.retries += 1;
      };
      const { bytes } = await this.#client.cutOut({ image: await encode(picture) }, { onRetry });
      const { width, height } = await sharp(bytes).metadata();
      assert.deepEqual([width, height], [picture.width, picture.height]);
      this.images += 1;
    }
  }
}
