import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { IMAGE_BYTES_MAX } from '#contract/limits.ts';
import { requireAcceptableImage } from '../../src/sources/acceptable-image.ts';

/** A PNG's signature and IHDR: all that is read. */
function pngHead(width: number, height: number): Buffer {
  const bytes = Buffer.alloc(33);
  bytes.write('\x89PNG\r\n\x1a\n\0\0\0\rIHDR', 'latin1');
  bytes.writeUInt32BE(width, 16);
  bytes.writeUInt32BE(height, 20);
  return bytes;
}

function accept(file: Buffer, sizeBytes = file.length) {
  return requireAcceptableImage(
    (offset, length) => file.subarray(offset, offset + length),
    sizeBytes,
  );
}

describe('requireAcceptableImage', () => {
  it('refuses more than 50 MB, and takes exactly 50 MB', async () => {
    await assert.rejects(accept(pngHead(1, 1), IMAGE_BYTES_MAX + 1), { code: 'IMAGE_TOO_LARGE' });
    await accept(pngHead(1, 1), IMAGE_BYTES_MAX);
  });

  it('refuses bytes that are not a supported image', async () => {
    for (const text of ['', 'GIF89a', 'this is text that calls itself image.png']) {
      await assert.rejects(accept(Buffer.from(text)), {
        code: 'UNSUPPORTED_IMAGE_FORMAT',
        retryable: false,
      });
    }
  });

  it('refuses animations', async () => {
    const animated = Buffer.alloc(48);
    animated.write('RIFF(\0\0\0WEBPVP8X\n\0\0\0\x02', 'latin1');
    await assert.rejects(accept(animated), {
      code: 'UNSUPPORTED_IMAGE_FORMAT',
      message: 'animated images are not supported',
    });
  });

  it('refuses a side or an area over the bound, and takes the bound itself', async () => {
    for (const [width, height] of [
      [10_001, 1],
      [1, 10_001],
      [17_000, 17_000],
      [2 ** 31 - 1, 2 ** 31 - 1],
    ] as const) {
      await assert.rejects(accept(pngHead(width, height)), { code: 'IMAGE_RESOLUTION_TOO_LARGE' });
    }
    await accept(pngHead(10_000, 10_000));
  });

  it('takes a known format whose size cannot be read', async () => {
    const header = await accept(pngHead(0, 5));
    assert.deepEqual(header, {
      format: 'png',
      width: undefined,
      height: undefined,
      animated: false,
    });
  });
});
