/**
 * The manners in which callers ask for an image while processes die. The submissions of one manner
 * mean the same request to the service: a caller tries again with any of them, and still has one
 * job.
 */
import assert from 'node:assert/strict';
import sharp from 'sharp';

/** A disc of the colour on grey: what a model takes for a subject. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly colour: readonly [number, number, number];
}

/** One request, as HTTP. Its Authorization is the caller's. */
export interface Submission {
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer | FormData;
  /** Whether the answer is the picture, once it is there. */
  readonly takesPicture: boolean;
}

export interface Manner {
  readonly name: string;
  /** @param key of the image; in the Idempotency-Key, where the manner has one */
  submissions(file: Buffer, key: string): readonly Submission[];
  /** Throws where the result is not one of this picture in this manner. */
  requireResult(result: Buffer, picture: Picture): Promise<void>;
}

const SYNC = '/v1/matting';
const ASYNC = '/v1/matting/jobs';
/** What lossy formats and the foreground's estimate may change of a colour. */
const COLOUR_OFF_MAX = 3;

/** No two alike, in size or in colour. */
export function pictureOf(index: number): Picture {
  return {
    width: 160 + (index % 64),
    height: 160 + (Math.floor(index / 64) % 64),
    colour: [60 + ((index * 37) % 180), 60 + ((index * 59) % 180), 60 + ((index * 83) % 180)],
  };
}

export async function encode({ width, height, colour }: Picture): Promise<Buffer> {
  const radius = Math.min(width, height) * 0.32;
  const pixels = Buffer.alloc(width * height * 3, 128);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (Math.hypot(x - width / 2, y - height / 2) > radius) continue;
      pixels.set(colour, 3 * (y * width + x));
    }
  }
  return sharp(pixels, { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer();
}

type Fields = Readonly<Record<string, string>>;

/** The file in every form of the body, each with what a path needs besides. */
function bodiesOf(file: Buffer, fields: Fields) {
  const form = () => {
    const parts = new FormData();
    parts.set('image_file', new Blob([file], { type: 'image/png' }), 'photo.png');
    for (const [name, value] of Object.entries(fields)) parts.set(name, value);
    return parts;
  };
  const json = JSON.stringify({ ...fields, image_base64: file.toString('base64') });
  return [
    { query: '', type: { 'content-type': 'application/json' }, body: json },
    // The client writes the type, with the boundary.
    { query: '', type: {}, body: form() },
    { query: `?${new URLSearchParams(fields)}`, type: { 'content-type': 'image/png' }, body: file },
  ];
}

/** In every form of the body and of the answer, with and without waiting. */
function everyForm(fields: Fields, accept: string): Manner['submissions'] {
  return (file, key) =>
    bodiesOf(file, fields).flatMap(({ query, type, body }) =>
      [
        { path: SYNC, accept },
        { path: SYNC, accept: '*/*' },
        { path: ASYNC, accept: '*/*' },
      ].map(way => ({
        path: `${way.path}${query}`,
        headers: { 'idempotency-key': key, accept: way.accept, ...type },
        body,
        takesPicture: way.accept === accept,
      })),
    );
}

async function pixelsOf(file: Buffer) {
  const { data, info } = await sharp(file).raw().toBuffer({ resolveWithObject: true });
  const { width, height, channels } = info;
  const at = (x: number, y: number) => {
    const place = channels * (Math.floor(y) * width + Math.floor(x));
    return [...data.subarray(place, place + channels)];
  };
  return { width, height, channels, at };
}

function requireColour(seen: readonly number[], { colour }: Picture): void {
  const off = Math.max(...colour.map((value, channel) => Math.abs(value - (seen[channel] ?? 0))));
  assert.ok(off <= COLOUR_OFF_MAX, `${seen} is not ${colour}`);
}

const PLAIN: Manner = {
  name: 'plain',
  submissions: everyForm({}, 'image/png'),
  requireResult: async (result, picture) => {
    const { width, height, channels, at } = await pixelsOf(result);
    assert.deepEqual([width, height, channels], [picture.width, picture.height, 4]);
    const seen = at(width / 2, height / 2);
    assert.ok((seen[3] ?? 0) > 200, `the subject is missing: ${seen}`);
    requireColour(seen, picture);
  },
};

/** Images take turns at them. */
export const MANNERS: readonly Manner[] = [PLAIN];
