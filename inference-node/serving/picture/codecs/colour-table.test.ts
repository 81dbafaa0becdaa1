/**
 * Every format, depth and kind of pixel with every way to describe colours must give the same
 * colour. CMYK and high dynamic range: decode.test.ts and jxl-tools.test.ts.
 */
import assert from 'node:assert/strict';
import { deflateSync } from 'node:zlib';
import { u32 } from '@matting/proto/contract/test/image-header-samples.ts';
import { at } from '@matting/test-support/at.ts';
import test, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import {
  type AvifFields,
  nclx,
  profileColour,
  writeAvifFields,
} from '../../test/picture/codecs/avif-files.ts';
import { writeJxlFields } from '../../test/picture/codecs/jxl-files.ts';
import {
  ADOBE_CURVE,
  ADOBE_GAMUT,
  type Curve,
  createGreyProfile,
  createRgbProfile,
  createTableProfile,
  type Gamut,
  LINEAR_CURVE,
  P3_GAMUT,
  REC2020_GAMUT,
  SRGB_CURVE,
  SRGB_GAMUT,
  toSrgb8,
  type Vector,
} from '../../test/picture/codecs/reference-colours.ts';
import { riff } from '../../test/picture/damage/forms.ts';
import {
  asSharp,
  createPng,
  createPngChunk,
  decode,
  insertPngChunks,
  loadVips,
  paintSlope,
  writeJxl,
} from '../../test/pictures.ts';
import { hasJxlTools } from '../makeable.ts';
import { readOutside } from './codec-jxl.ts';
import { isSrgbProfile } from './colour/icc-profile.ts';
import { bytesOfSamples, divideByAlpha, type Samples } from './colour/samples.ts';

const SIDE = 16;
/** Shares of 1, straight. */
const COLOUR = [0.8, 0.5, 0.3] as const;
const GREY = 0.5;
const ALPHA = 0.75;

type Channels = 1 | 2 | 3 | 4;
type Format = 'png' | 'jpeg' | 'webp' | 'avif' | 'jxl';

interface Tag {
  readonly name: string;
  readonly gamut: Gamut;
  readonly curve: Curve;
  readonly profile?: true;
  /** ITU-T H.273. */
  readonly cicp?: readonly [primaries: number, transfer: number];
  /** gAMA's exponent in a PNG. */
  readonly gamma?: number;
}

const PLAIN: Tag = { name: 'nothing', gamut: SRGB_GAMUT, curve: SRGB_CURVE };
const LINEAR_PROFILE: Tag = {
  name: 'linear profile',
  gamut: SRGB_GAMUT,
  curve: LINEAR_CURVE,
  profile: true,
};
const PROFILES: readonly Tag[] = [
  { name: 'sRGB profile', gamut: SRGB_GAMUT, curve: SRGB_CURVE, profile: true },
  { name: 'P3 profile', gamut: P3_GAMUT, curve: SRGB_CURVE, profile: true },
  { name: 'Adobe RGB profile', gamut: ADOBE_GAMUT, curve: ADOBE_CURVE, profile: true },
  LINEAR_PROFILE,
];
const NUMBERS: readonly Tag[] = [
  { name: 'sRGB numbers', gamut: SRGB_GAMUT, curve: SRGB_CURVE, cicp: [1, 13] },
  { name: 'P3 numbers', gamut: P3_GAMUT, curve: SRGB_CURVE, cicp: [12, 13] },
  { name: 'BT.2020 numbers', gamut: REC2020_GAMUT, curve: SRGB_CURVE, cicp: [9, 13] },
  { name: 'linear numbers', gamut: SRGB_GAMUT, curve: LINEAR_CURVE, cicp: [1, 8] },
];
/** Furthest from sRGB, for slower depths. */
const WIDEST = [...PROFILES, ...NUMBERS].filter(({ name }) => /linear|P3/.test(name));
const GAMMA: Tag = { name: 'gAMA', gamut: SRGB_GAMUT, curve: LINEAR_CURVE, gamma: 1 };

interface Case {
  readonly format: Format;
  /** 32: floating-point. */
  readonly bits: 8 | 10 | 12 | 16 | 32;
  readonly channels: Channels;
  readonly tag: Tag;
  readonly premultiplied: boolean;
  /** Three channels; default: COLOUR. */
  readonly colour?: Vector;
}

function* cases(): Generator<Case> {
  const kinds: readonly [Format, Case['bits'][], Channels[], readonly Tag[]][] = [
    ['png', [8, 16], [1, 2, 3, 4], [PLAIN, ...PROFILES, ...NUMBERS, GAMMA]],
    ['jpeg', [8], [1, 3], [PLAIN, ...PROFILES]],
    ['webp', [8], [1, 3, 4], [PLAIN, ...PROFILES]],
    ['avif', [8], [3, 4], [...PROFILES, ...NUMBERS]],
    ['avif', [8], [1, 2], WIDEST],
    ['avif', [10, 12], [2, 4], WIDEST],
    ['jxl', [8], [3, 4], [PLAIN, ...PROFILES, ...NUMBERS]],
    ['jxl', [8], [1, 2], [PLAIN, ...WIDEST]],
    ['jxl', [16], [1, 2, 3, 4], WIDEST],
    ['jxl', [32], [1, 3, 4], [PLAIN, ...NUMBERS]],
  ];
  for (const [format, depths, kindsOfPixels, tags] of kinds) {
    for (const bits of depths) {
      for (const channels of kindsOfPixels) {
        for (const tag of tags) {
          yield { format, bits, channels, tag, premultiplied: false };
          // No encoder here writes a profile with premultiplied colours.
          const canMultiply = format === 'avif' || (format === 'jxl' && !tag.profile);
          if (canMultiply && channels % 2 === 0) {
            yield { format, bits, channels, tag, premultiplied: true };
          }
        }
      }
    }
  }
}

function storedPixel({ channels, bits, premultiplied, colour = COLOUR }: Case): number[] {
  const sampleMax = 2 ** bits - 1;
  const alpha = Math.round(ALPHA * sampleMax);
  const straight = channels < 3 ? [GREY] : [...colour];
  const share = premultiplied ? alpha / sampleMax : 1;
  const colours = straight.map(value => Math.round(value * share * sampleMax));
  return channels % 2 === 0 ? [...colours, alpha] : colours;
}

/** RGBA, 0 to 255, not rounded. */
function expected(made: Case): number[] {
  const { channels, bits, tag, premultiplied } = made;
  const stored = storedPixel(made).map(value => value / (2 ** bits - 1));
  const alpha = channels % 2 === 0 ? (stored.at(-1) ?? 1) : 1;
  const straight = stored
    .slice(0, channels < 3 ? 1 : 3)
    .map(value => (premultiplied ? value / alpha : value));
  const grey = at(straight, 0);
  const rgb: Vector = channels < 3 ? [grey, grey, grey] : [grey, at(straight, 1), at(straight, 2)];
  // Grey has no gamut.
  const gamut = channels < 3 ? SRGB_GAMUT : tag.gamut;
  return [...toSrgb8(rgb, gamut, tag.curve), 255 * alpha];
}

function samplesOf(made: Case): Samples {
  const pixel = storedPixel(made);
  const samples = new (made.bits === 8 ? Uint8Array : Uint16Array)(SIDE * SIDE * pixel.length);
  // Encoders take 10 and 12 bits in the upper bits of 16.
  const scale = made.bits === 8 ? 1 : 2 ** (16 - made.bits);
  for (let i = 0; i < samples.length; i++) samples[i] = at(pixel, i % pixel.length) * scale;
  return samples;
}

function floatsOf(made: Case): Float32Array {
  const pixel = storedPixel(made).map(value => value / (2 ** made.bits - 1));
  return Float32Array.from({ length: SIDE * SIDE * pixel.length }, (_, i) => {
    return at(pixel, i % pixel.length);
  });
}

function profileOf({ tag, channels }: Case): Buffer | undefined {
  if (tag.profile === undefined) return undefined;
  return channels < 3 ? createGreyProfile(tag.curve) : createRgbProfile(tag.gamut, tag.curve);
}

function write(
  t: ExecutionContext,
  made: Case,
  profile = profileOf(made),
): Promise<Buffer> | Buffer {
  switch (made.format) {
    case 'png':
      return writePng(made, profile);
    case 'jpeg':
      return writeJpeg(made, profile);
    case 'webp':
      return writeWebp(t, made, profile);
    case 'avif':
      return writeAvifFields(avifOf(made, profile));
    case 'jxl':
      return writeJxlCase(made, profile);
  }
}

function avifOf(made: Case, profile: Buffer | undefined): AvifFields {
  const { channels, bits, tag, premultiplied } = made;
  return {
    width: SIDE,
    height: SIDE,
    channels,
    bits: bits === 10 || bits === 12 ? bits : 8,
    samples: samplesOf(made),
    colour: profile ? profileColour(profile) : nclx(...(tag.cicp ?? [1, 13])),
    premultiplied,
  };
}

function profileChunk(profile: Buffer): Buffer {
  return createPngChunk('iCCP', Buffer.concat([Buffer.from('p\0\0'), deflateSync(profile)]));
}

function cicpChunk([primaries, transfer]: readonly [number, number]): Buffer {
  return createPngChunk('cICP', Buffer.from([primaries, transfer, 0, 1]));
}

function gammaChunk(exponent: number): Buffer {
  return createPngChunk('gAMA', u32(Math.round(100_000 / exponent)));
}

function writePng(made: Case, profile: Buffer | undefined): Buffer {
  const { bits, channels } = made;
  const pixel = storedPixel(made).flatMap(v => (bits === 16 ? [v >>> 8, v & 255] : [v]));
  return createPng({
    colourType: at([0, 0, 4, 2, 6], channels),
    depth: bits,
    width: SIDE,
    height: SIDE,
    row: Array(SIDE).fill(pixel).flat(),
    chunks: colourChunks(made, profile),
  });
}

function colourChunks({ tag }: Case, profile: Buffer | undefined): Buffer[] {
  return [
    ...(profile ? [profileChunk(profile)] : []),
    ...(tag.cicp ? [cicpChunk(tag.cicp)] : []),
    ...(tag.gamma ? [gammaChunk(tag.gamma)] : []),
  ];
}

async function writeJpeg(made: Case, profile: Buffer | undefined): Promise<Buffer> {
  const raw = { width: SIDE, height: SIDE, channels: made.channels };
  const picture = sharp(samplesOf(made), { raw });
  const space = made.channels === 1 ? 'b-w' : 'srgb';
  const file = await picture
    .toColourspace(space)
    .jpeg({ quality: 100, chromaSubsampling: '4:4:4' })
    .toBuffer();
  if (profile === undefined) return file;
  const content = Buffer.concat([Buffer.from('ICC_PROFILE\0\x01\x01', 'latin1'), profile]);
  const head = Buffer.from([0xff, 0xe2, 0, 0]);
  head.writeUInt16BE(content.length + 2, 2);
  return Buffer.concat([file.subarray(0, 2), head, content, file.subarray(2)]);
}

/** WebP stores grey as colours. */
async function writeWebp(
  t: ExecutionContext,
  made: Case,
  profile: Buffer | undefined,
): Promise<Buffer> {
  const raw = { width: SIDE, height: SIDE, channels: made.channels };
  const file = await sharp(samplesOf(made), { raw }).webp({ lossless: true }).toBuffer();
  if (profile === undefined) return file;
  t.is(file.toString('latin1', 12, 16), 'VP8L');
  const canvas = Buffer.alloc(10);
  canvas[0] = 0x20 | (made.channels === 4 ? 0x10 : 0);
  canvas.writeUIntLE(SIDE - 1, 4, 3);
  canvas.writeUIntLE(SIDE - 1, 7, 3);
  const body = [Buffer.from('WEBP'), riff('VP8X', canvas), riff('ICCP', profile)];
  return riff('RIFF', Buffer.concat([...body, file.subarray(12)]));
}

async function writeJxlCase(made: Case, profile: Buffer | undefined): Promise<Buffer> {
  const { channels, bits, tag, premultiplied } = made;
  const samples = bits === 32 ? floatsOf(made) : samplesOf(made);
  if (profile === undefined) {
    const [primaries, transfer] = tag.cicp ?? [1, 13];
    // The format's own numbers of P3 and BT.2020.
    const colours = { primaries: { 12: 11, 9: 9 }[primaries] ?? 1, transfer };
    const size = { width: SIDE, height: SIDE };
    return await writeJxlFields({ ...size, channels, samples, colours, premultiplied });
  }
  const { Image, BandFormat } = await loadVips();
  const isDeep = bits === 16;
  const grey = isDeep ? 'grey16' : 'b-w';
  const format = isDeep ? BandFormat.ushort : BandFormat.uchar;
  const image = Image.newFromMemory(samples, SIDE, SIDE, channels, format).copy({
    interpretation: channels < 3 ? grey : isDeep ? 'rgb16' : 'srgb',
  });
  image.setBlob('icc-profile-data', profile);
  return Buffer.from(image.jxlsaveBuffer({ lossless: true, effort: 1 }));
}

/** Out of 255. Dividing by alpha enlarges a codec's loss. */
function toleranceOf({ format, premultiplied }: Case): number {
  if (format !== 'jpeg' && format !== 'avif') return 1.5;
  return premultiplied ? 3 : 2;
}

function requireColour(t: ExecutionContext, pixel: number, made: Case, by: number): void {
  const actual = [0, 8, 16, 24].map(shift => (pixel >>> shift) & 255);
  const wanted = expected(made);
  const { format, bits, channels, tag, premultiplied } = made;
  const label = `${format} of ${channels} x ${bits} bits, ${tag.name}${premultiplied ? ', multiplied' : ''}`;
  for (const [i, value] of wanted.entries()) {
    t.true(Math.abs(at(actual, i) - value) <= by, `${label}: ${actual} for ${wanted}`);
  }
}

const MIDDLE = SIDE * (SIDE / 2) + SIDE / 2;

const profile = createRgbProfile(SRGB_GAMUT, LINEAR_CURVE);
const P3: Tag = { name: 'P3 numbers', gamut: P3_GAMUT, curve: SRGB_CURVE, cicp: [12, 13] };
const srgb = createPngChunk('sRGB', Buffer.from([0]));
const xy = [31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000];
const p3Primaries = createPngChunk('cHRM', u32(...xy));
const pngOf = (bits: 8 | 16, tag: Tag, ...chunks: Buffer[]) => {
  const made: Case = { format: 'png', bits, channels: 4, tag, premultiplied: false };
  return { made, file: insertPngChunks(writePng({ ...made, tag: PLAIN }, undefined), ...chunks) };
};

test('precedence of colour descriptions › PNG: cICP, iCCP, sRGB, gAMA; numbers that are not known are none', async t => {
  const iccp = profileChunk(profile);
  for (const bits of [8, 16] as const) {
    for (const { made, file } of [
      pngOf(bits, P3, cicpChunk([12, 13]), iccp, srgb, gammaChunk(1)),
      pngOf(bits, PLAIN, cicpChunk([1, 13]), iccp),
      pngOf(bits, LINEAR_PROFILE, cicpChunk([2, 2]), iccp),
      pngOf(bits, LINEAR_PROFILE, cicpChunk([1, 255]), iccp),
      pngOf(bits, LINEAR_PROFILE, iccp, srgb, gammaChunk(2.8)),
      pngOf(bits, PLAIN, srgb, gammaChunk(1)),
      pngOf(bits, GAMMA, gammaChunk(1)),
      pngOf(bits, PLAIN, gammaChunk(2.2)),
      pngOf(bits, PLAIN, createPngChunk('cHRM', Buffer.alloc(32))),
      pngOf(bits, P3, gammaChunk(2.2), p3Primaries),
      pngOf(bits, PLAIN, srgb, gammaChunk(1), p3Primaries),
      pngOf(bits, PLAIN, gammaChunk(1), cicpChunk([1, 13])),
      pngOf(bits, PLAIN, cicpChunk([2, 2])),
      // An invalid profile is ignored.
      pngOf(bits, GAMMA, profileChunk(Buffer.from('no profile')), gammaChunk(1)),
    ]) {
      const { rgba } = await decode(file);
      requireColour(t, at(rgba, MIDDLE), made, 1.5);
    }
  }
});

test('precedence of colour descriptions › PNG: numbers of the narrow range', async t => {
  for (const bits of [8, 16] as const) {
    const unit = bits === 8 ? 1 : 256;
    const row = [16, 128, 235, 255].map(value => value * unit);
    const stored = row.flatMap(value => (bits === 8 ? [value] : [value >>> 8, value & 255]));
    const chunks = [createPngChunk('cICP', Buffer.from([1, 13, 0, 0]))];
    const size = { width: 4, height: 1 };
    const file = createPng({ ...size, colourType: 0, depth: bits, row: stored, chunks });
    const { rgba } = await decode(file);
    t.deepEqual(
      [...rgba].map(pixel => pixel & 255),
      [0, 130, 255, 255],
    );
  }
});

test('precedence of colour descriptions › AVIF: a profile above numbers', async t => {
  const tag = LINEAR_PROFILE;
  const made: Case = { format: 'avif', bits: 8, channels: 4, tag, premultiplied: false };
  const fields = avifOf(made, profileOf(made));
  const file = await writeAvifFields({ ...fields, numbers: nclx(12, 13) });
  requireColour(t, at((await decode(file)).rgba, MIDDLE), made, 2);
});

for (const format of ['png', 'jpeg', 'webp', 'avif', 'jxl'] as const) {
  test(`the same colour out of every file › ${format}`, async t => {
    for (const made of cases()) {
      if (made.format !== format) continue;
      const { rgba, translucent } = await decode(await write(t, made));
      requireColour(t, at(rgba, MIDDLE), made, toleranceOf(made));
      t.is(translucent, made.channels % 2 === 0);
    }
  });
}

test('the same colour out of every file › palettes and grey of few bits', async t => {
  const palette = createPngChunk('PLTE', Buffer.from([0, 0, 0, 204, 128, 77]));
  const chunks = [palette, createPngChunk('tRNS', Buffer.from([255, 191]))];
  const size = { width: SIDE, height: SIDE };
  for (const tag of [PLAIN, ...PROFILES, ...NUMBERS, GAMMA]) {
    const made: Case = { format: 'png', bits: 8, channels: 4, tag, premultiplied: false };
    const named = [...colourChunks(made, profileOf(made)), ...chunks];
    const fields = { ...size, colourType: 3, depth: 8, row: Array(SIDE).fill(1), chunks: named };
    const { rgba, translucent } = await decode(createPng(fields));
    t.true(translucent);
    requireColour(t, at(rgba, MIDDLE), made, toleranceOf(made));
  }
  for (const tag of [LINEAR_PROFILE, GAMMA]) {
    const made: Case = { format: 'png', bits: 8, channels: 1, tag, premultiplied: false };
    const [grey] = toSrgb8([1 / 3, 1 / 3, 1 / 3], SRGB_GAMUT, LINEAR_CURVE);
    for (const depth of [2, 4]) {
      const chunks = colourChunks(made, profileOf(made));
      const row = Array((SIDE * depth) / 8).fill(0x55);
      const { rgba } = await decode(createPng({ ...size, colourType: 0, depth, row, chunks }));
      t.true(Math.abs((at(rgba, MIDDLE) & 255) - grey) <= 1.5, `${depth} bits`);
    }
  }
});

test.skipIf(!hasJxlTools())(
  'the same colour out of every file › jxl by djxl, as what is too large for WebAssembly',
  async t => {
    const { Image } = await loadVips();
    for (const made of cases()) {
      if (made.format !== 'jxl' || !WIDEST.includes(made.tag) || made.channels === 3) continue;
      const file = await write(t, made);
      const profile = Image.newFromBuffer(file, '').getBlob('icc-profile-data');
      const { premultiplied } = made;
      const isFloat = made.bits === 32;
      const stored = { file, width: SIDE, height: SIDE, premultiplied, isFloat, profile };
      if (isFloat && made.channels % 2 === 0) {
        // djxl (0.7) has no file format for floating-point alpha.
        await t.throwsAsync(readOutside(stored), { code: 'UNSUPPORTED_IMAGE_FORMAT' });
        continue;
      }
      requireColour(t, at(await readOutside(stored), MIDDLE), made, 2);
    }
  },
);

test('the same colour out of every file › AVIF: grey of the narrow range', async t => {
  for (const bits of [8, 10, 12] as const) {
    for (const channels of [1, 2] as const) {
      for (const tag of [PLAIN, LINEAR_PROFILE]) {
        const made: Case = { format: 'avif', bits, channels, tag, premultiplied: false };
        const fields = avifOf(made, profileOf(made));
        const narrow = (16 + 219 * GREY) * 2 ** (bits - 8) * (bits === 8 ? 1 : 2 ** (16 - bits));
        const samples = fields.samples.map((value, i) => (i % channels === 0 ? narrow : value));
        const numbers = nclx(1, 13, { isNarrow: true });
        const colour = tag.profile ? { numbers } : { colour: numbers };
        const file = await writeAvifFields({ ...fields, samples, ...colour });
        requireColour(t, at((await decode(file)).rgba, MIDDLE), made, 2);
      }
    }
  }
});

test('the same colour out of every file › AVIF: colours without luma, of the narrow range', async t => {
  const made: Case = { format: 'avif', bits: 8, channels: 3, tag: PLAIN, premultiplied: false };
  const [red, green, blue] = COLOUR.map(value => 16 + 219 * value) as [number, number, number];
  // Luma and chroma of this pixel are the intended green, blue and red.
  const [chromaBlue, chromaRed] = [blue - 128, red - 128];
  const pixel = [
    green + 1.402 * chromaRed,
    green - 0.344136 * chromaBlue - 0.714136 * chromaRed,
    green + 1.772 * chromaBlue,
  ];
  const samples = Uint8Array.from({ length: SIDE * SIDE * 3 }, (_, i) =>
    Math.round(at(pixel, i % 3)),
  );
  const colour = nclx(1, 13, { isNarrow: true, matrix: 0 });
  const file = await writeAvifFields({ ...avifOf(made, undefined), samples, colour });
  requireColour(t, at((await decode(file)).rgba, MIDDLE), made, 2);
});

/** Class and colour space of profiles that are not of three colours. */
const FOREIGN_KINDS = [
  ...['Lab ', '3CLR', 'HSV ', 'YCbr', 'XYZ ', 'GRAY', 'CMYK', 'abcd'].map(space => `mntr${space}`),
  ...['link', 'abst', 'nmcl', 'abcd'].map(kind => `${kind}RGB `),
];

for (const format of ['png', 'jpeg', 'webp', 'avif'] as const) {
  test(`a profile for other pixels is ignored › ${format}`, async t => {
    const tag: Tag = { ...PLAIN, profile: true };
    const depths = { png: [8, 16], avif: [8, 10], jpeg: [8], webp: [8] } as const;
    for (const bits of depths[format]) {
      const made: Case = { format, bits, channels: 3, tag, premultiplied: false };
      for (const kind of FOREIGN_KINDS) {
        const file = await write(t, made, createTableProfile(kind));
        requireColour(t, at((await decode(file)).rgba, MIDDLE), made, 2);
      }
      for (const kind of ['mntr', 'scnr', 'prtr', 'spac']) {
        const file = await write(t, made, createTableProfile(`${kind}RGB `));
        const pixel = at((await decode(file)).rgba, MIDDLE);
        const greens = (pixel >>> 8) & 255;
        for (const shift of [0, 16]) {
          t.true(Math.abs(((pixel >>> shift) & 255) - greens) <= 2, `followed: ${kind}`);
        }
      }
    }
  });
}

test('a profile for other pixels is ignored › of grey for three colours, even if all are grey', async t => {
  const tag: Tag = { ...PLAIN, profile: true };
  for (const format of ['png', 'jpeg'] as const) {
    const colour = [GREY, GREY, GREY] as const;
    const made: Case = { format, bits: 8, channels: 3, tag, premultiplied: false, colour };
    const file = await write(t, made, createGreyProfile(LINEAR_CURVE));
    requireColour(t, at((await decode(file)).rgba, MIDDLE), made, 2);
  }
});

function divided<T extends Samples>(samples: T, channels?: 2 | 4, sampleMax?: number): number[] {
  divideByAlpha(samples, channels, sampleMax);
  return [...samples];
}

test('samples › colours are divided by alpha and rounded, at any depth', t => {
  t.deepEqual(divided(Uint8Array.of(126, 68, 16, 134)), [240, 129, 30, 134]);
  t.deepEqual(divided(Uint8Array.of(1, 2, 3, 3)), [85, 170, 255, 3]);
  t.deepEqual(divided(Uint8Array.of(67, 134), 2), [128, 134]);
  t.deepEqual(divided(Uint16Array.of(16_384, 0, 32_768, 32_768)), [32_768, 0, 65_535, 32_768]);
  t.deepEqual(divided(Uint16Array.of(100, 200), 2, 1023), [512, 200]);
});

test('samples › what is opaque stays, what is transparent has no colour, what is too bright is white', t => {
  t.deepEqual(divided(Uint8Array.of(1, 2, 3, 255)), [1, 2, 3, 255]);
  t.deepEqual(divided(Uint8Array.of(9, 99, 199, 0)), [0, 0, 0, 0]);
  t.deepEqual(divided(Uint8Array.of(200, 101, 99, 100)), [255, 255, 252, 100]);
});

test('samples › 16 bits come to 8 by rounding', t => {
  const bytes = bytesOfSamples(Uint16Array.of(0, 128, 129, 257, 65_406, 65_407, 65_535));
  t.deepEqual([...bytes], [0, 0, 1, 1, 254, 255, 255]);
});

async function profileNamed(name: string): Promise<Buffer> {
  const file = await asSharp(paintSlope(8, 8)).withIccProfile(name).jpeg().toBuffer();
  const { icc } = await sharp(file).metadata();
  assert.ok(icc);
  return icc;
}

test('profiles › sRGB is recognised, others are not', async t => {
  t.true(isSrgbProfile(await profileNamed('srgb')));
  t.false(isSrgbProfile(await profileNamed('p3')));
  t.false(isSrgbProfile(await profileNamed('cmyk')));
});

test('profiles › the profile that libjxl makes for sRGB is recognised, that for grey is not', async t => {
  const { Image } = await loadVips();
  const colour = Image.newFromBuffer(await writeJxl(paintSlope(8, 8)), '');
  t.true(isSrgbProfile(colour.getBlob('icc-profile-data')));
  const plane = { data: Buffer.alloc(64, 9), width: 8, height: 8, channels: 1 } as const;
  const grey = Image.newFromBuffer(await writeJxl(plane), '');
  t.false(isSrgbProfile(grey.getBlob('icc-profile-data')));
});

test('profiles › a damaged profile is no sRGB and no error', async t => {
  const named = await profileNamed('srgb');
  for (let length = 0; length < named.length; length += 7) {
    t.false(isSrgbProfile(named.subarray(0, length)));
  }
  for (let at = 0; at < named.length; at++) {
    for (const value of [0x00, 0x7f, 0xff]) {
      const damaged = Buffer.from(named);
      damaged[at] = value;
      isSrgbProfile(damaged);
    }
  }
});

test('profiles › sRGB primaries with another curve are not sRGB', async t => {
  const named = Buffer.from(await profileNamed('srgb'));
  const tags = Array.from({ length: named.readUInt32BE(128) }, (_, i) => 132 + 12 * i);
  const curve = tags.find(at => named.toString('latin1', at, at + 4) === 'gTRC');
  assert.ok(curve);
  const offset = named.readUInt32BE(curve + 4);
  t.is(named.toString('latin1', offset, offset + 4), 'para');
  named.writeInt32BE(Math.round(1.8 * 65536), offset + 12);
  t.false(isSrgbProfile(named));
});
