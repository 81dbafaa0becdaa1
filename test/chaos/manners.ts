/** Ways to send and resend a request while processes die. Needs: removebg, mcp. */
import assert from 'node:assert/strict';
import sharp from 'sharp';

/** A disc on grey, which a model takes for a subject. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly colour: readonly [number, number, number];
}

/** Without Authorization, which is the caller's. */
export interface Submission {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer | FormData;
  readonly takesPicture: boolean;
}

export interface Manner {
  readonly name: string;
  /** @param key of the image; part of the Idempotency-Key if there is one */
  submissions(file: Buffer, key: string): readonly Submission[];
  requireResult(result: Buffer, picture: Picture): Promise<void>;
}

const SYNC = '/v1/matting';
const ASYNC = '/v1/matting/jobs';
/** The foreground estimate may change a colour by this. */
const COLOUR_OFF_MAX = 3;
/** Also for slightly transparent parts. */
const LOSSY_OFF_MAX = 16;

/** Sizes and colours all differ. */
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

function formOf(file: Buffer, fields: Fields, background?: Buffer): FormData {
  const parts = new FormData();
  parts.set('image_file', new Blob([file], { type: 'image/png' }), 'photo.png');
  for (const [name, value] of Object.entries(fields)) parts.set(name, value);
  if (background !== undefined) parts.set('background_file', new Blob([background]), 'wall.png');
  return parts;
}

function bodiesOf(file: Buffer, fields: Fields) {
  const json = JSON.stringify({ ...fields, image_base64: file.toString('base64') });
  return [
    { query: '', type: { 'content-type': 'application/json' }, body: json },
    // fetch writes the type, with the boundary.
    { query: '', type: {}, body: formOf(file, fields) },
    { query: `?${new URLSearchParams(fields)}`, type: { 'content-type': 'image/png' }, body: file },
  ];
}

function everyWay(
  { query, type, body }: ReturnType<typeof bodiesOf>[number],
  accept: string,
  key: string,
): Submission[] {
  return [
    { path: SYNC, accepted: accept },
    { path: SYNC, accepted: '*/*' },
    { path: ASYNC, accepted: '*/*' },
  ].map(({ path, accepted }) => ({
    path: `${path}${query}`,
    headers: { 'idempotency-key': key, accept: accepted, ...type },
    body,
    takesPicture: accepted === accept,
  }));
}

function everyForm(fields: Fields, accept: string): Manner['submissions'] {
  return (file, key) => bodiesOf(file, fields).flatMap(body => everyWay(body, accept, key));
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

function requireColour(
  seen: readonly number[],
  colour: Picture['colour'],
  offMax = COLOUR_OFF_MAX,
): void {
  const off = Math.max(...colour.map((value, channel) => Math.abs(value - (seen[channel] ?? 0))));
  assert.ok(off <= offMax, `${seen} is not ${colour}`);
}

export const PLAIN: Manner = {
  name: 'plain',
  submissions: everyForm({}, 'image/png'),
  requireResult: async (result, picture) => {
    const { width, height, channels, at } = await pixelsOf(result);
    assert.deepEqual([width, height, channels], [picture.width, picture.height, 4]);
    const seen = at(width / 2, height / 2);
    assert.ok((seen[3] ?? 0) > 200, `the subject is missing: ${seen}`);
    requireColour(seen, picture.colour);
  },
};

const ON_WHITE: Manner = {
  name: 'on white',
  submissions: everyForm({ background: 'white', output_format: 'jpeg' }, 'image/jpeg'),
  requireResult: async (result, picture) => {
    const { width, height, channels, at } = await pixelsOf(result);
    assert.deepEqual([width, height, channels], [picture.width, picture.height, 3]);
    requireColour(at(width / 2, height / 2), picture.colour, LOSSY_OFF_MAX);
    requireColour(at(2, 2), [255, 255, 255], LOSSY_OFF_MAX);
  },
};

const SQUARE_PX = 200;
const SQUARE: Manner = {
  name: 'cropped to a square',
  submissions: everyForm(
    {
      crop: 'true',
      scale: '80%',
      output_width: `${SQUARE_PX}`,
      output_height: `${SQUARE_PX}`,
      output_format: 'webp',
    },
    'image/*',
  ),
  requireResult: async (result, picture) => {
    const { width, height, channels, at } = await pixelsOf(result);
    assert.deepEqual([width, height, channels], [SQUARE_PX, SQUARE_PX, 4]);
    requireColour(at(width / 2, height / 2), picture.colour, LOSSY_OFF_MAX);
    assert.ok((at(2, 2)[3] ?? 255) < 50, 'the frame is transparent around the subject');
  },
};

const WALL_COLOUR = [30, 144, 255] as const;
const WALL = await sharp({
  create: { width: 50, height: 20, channels: 3, background: `rgb(${WALL_COLOUR.join(',')})` },
})
  .png()
  .toBuffer();
/** A second file, which only a form can carry. */
const ON_A_WALL: Manner = {
  name: 'on a picture',
  submissions: (file, key) =>
    everyWay({ query: '', type: {}, body: formOf(file, {}, WALL) }, 'image/png', key),
  requireResult: async (result, picture) => {
    const { width, height, at } = await pixelsOf(result);
    assert.deepEqual([width, height], [picture.width, picture.height]);
    requireColour(at(width / 2, height / 2), picture.colour, LOSSY_OFF_MAX);
    requireColour(at(2, 2), WALL_COLOUR, LOSSY_OFF_MAX);
  },
};

/** Sends no key: the service derives one from picture and options. */
export const REMOVE_BG: Manner = {
  ...PLAIN,
  name: 'by the remove.bg interface',
  submissions: file => {
    const image_file_b64 = file.toString('base64');
    const json = JSON.stringify({ image_file_b64, size: 'auto', crop: false });
    const pairs = new URLSearchParams({ image_file_b64, size: 'auto' }).toString();
    const urlencoded = 'application/x-www-form-urlencoded';
    const bodies = [
      { type: {}, body: formOf(file, { size: 'auto', crop: 'false' }) },
      { type: { 'content-type': urlencoded }, body: pairs },
      { type: { 'content-type': 'application/json' }, body: json },
    ];
    return bodies.flatMap(({ type, body }) =>
      ['*/*', 'application/json'].map(accept => ({
        path: '/v1.0/removebg',
        headers: { accept, ...type },
        body,
        takesPicture: accept === '*/*',
      })),
    );
  },
};

/** Sends no key either; the answer contains the job's id. */
const BY_AN_AGENT: Manner = {
  ...PLAIN,
  name: 'by an agent',
  submissions: file => {
    const given = { image_base64: file.toString('base64') };
    const params = { name: 'remove_background', arguments: given };
    return [
      {
        path: '/mcp',
        headers: {
          accept: 'application/json, text/event-stream',
          'content-type': 'application/json',
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
        takesPicture: false,
      },
    ];
  },
};

const PHOTOROOM: Manner = {
  ...PLAIN,
  name: 'by the interface of Photoroom',
  submissions: file => {
    const json = JSON.stringify({ image_file_b64: file.toString('base64'), crop: false });
    const bodies = [
      { type: {}, body: formOf(file, { size: 'full', despill: 'true' }) },
      { type: { 'content-type': 'application/json' }, body: json },
    ];
    return bodies.flatMap(({ type, body }) =>
      ['*/*', 'application/json'].map(accept => ({
        path: '/compat/photoroom/v1/segment',
        headers: { accept, ...type },
        body,
        takesPicture: accept === '*/*',
      })),
    );
  },
};

const REMBG: Manner = {
  ...PLAIN,
  name: 'by the interface of rembg',
  submissions: file =>
    ['', '?a=true&extras=1'].map(query => {
      const body = new FormData();
      body.set('file', new Blob([file], { type: 'image/png' }), 'photo.png');
      return { path: `/compat/rembg/api/remove${query}`, headers: {}, body, takesPicture: true };
    }),
};

/** For a model that finds subjects. */
export const MANNERS: readonly Manner[] = [
  ...[PLAIN, ON_WHITE, SQUARE, ON_A_WALL],
  ...[REMOVE_BG, BY_AN_AGENT, PHOTOROOM, REMBG],
];

export async function discOf(index: number, manner: Manner) {
  const picture = pictureOf(index);
  const requireCutOut = (cutOut: Uint8Array) => manner.requireResult(Buffer.from(cutOut), picture);
  return { file: await encode(picture), requireCutOut };
}
