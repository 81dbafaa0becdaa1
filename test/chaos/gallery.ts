/**
 * The pictures of a storm, no two alike, the manners in which callers ask for them, and how to tell
 * that a result is of its own picture.
 */
import assert from 'node:assert/strict';
import sharp from 'sharp';
import { at } from '../support/at.ts';
import { encode, MANNERS, type Manner, PLAIN, pictureOf, REMOVE_BG } from './manners.ts';

export interface Gallery {
  file(index: number): Promise<Buffer>;
  manner(index: number): Pick<Manner, 'name' | 'submissions'>;
  /** Throws where the result is not one of this picture in its manner. */
  requireResult(index: number, result: Buffer): Promise<void>;
}

const mannerOf = (index: number) => at(MANNERS, index % MANNERS.length);

/** Discs on grey in every manner there is: for a model that finds subjects. */
export const DISCS: Gallery = {
  file: index => encode(pictureOf(index)),
  manner: mannerOf,
  requireResult: (index, result) => mannerOf(index).requireResult(result, pictureOf(index)),
};

const UNIFORM_MANNERS = [PLAIN, REMOVE_BG];
/** The engine computes in bytes. */
const ALPHA_OFF_MAX = 2;

function uniformOf(index: number) {
  const width = 16 + (index % 97);
  const height = 16 + (index % 89);
  return { width, height, brightness: 140 + ((index * 7) % 116) };
}

/** For the tiny model, whose alpha is a picture's brightness. */
export const UNIFORM: Gallery = {
  file: index => {
    const { width, height, brightness } = uniformOf(index);
    const background = { r: brightness, g: brightness, b: brightness };
    return sharp({ create: { width, height, channels: 3, background } })
      .png()
      .toBuffer();
  },
  manner: index => at(UNIFORM_MANNERS, index % UNIFORM_MANNERS.length),
  requireResult: async (index, result) => {
    const { width, height, brightness } = uniformOf(index);
    const { data, info } = await sharp(result).raw().toBuffer({ resolveWithObject: true });
    assert.deepEqual([info.width, info.height, info.channels], [width, height, 4]);
    const alpha = data.readUInt8(3);
    assert.ok(Math.abs(alpha - brightness) <= ALPHA_OFF_MAX, `${alpha} for ${brightness}`);
  },
};
