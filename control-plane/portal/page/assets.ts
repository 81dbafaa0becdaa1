/**
 * The style sheet, the scripts and the icons. The address of each has the hash of its bytes, so
 * that browsers keep it forever and never mix two releases.
 */

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance } from 'fastify';

const FOLDER = path.join(import.meta.dirname, '../assets');
const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.webp': 'image/webp',
};
const YEAR_SECONDS = 31_536_000;
/** Digits of SHA-256 that distinguish the files of one name. */
const HASH_DIGITS = 16;

/** The picture of `make demo`, also a sample in the playground. */
const DEMO_FILE = path.join(import.meta.dirname, '../../../docs/images/demo.jpg');

export interface Asset {
  readonly name: string;
  readonly hash: string;
  readonly type: string;
  readonly bytes: Buffer;
}

export function makeAsset(name: string, bytes: Buffer): Asset {
  const type = TYPES[path.extname(name)];
  if (type === undefined) throw new Error(`${name} has no type of an asset`);
  const hash = createHash('sha256').update(bytes).digest('hex').slice(0, HASH_DIGITS);
  return { name, hash, type, bytes };
}

const files = [...readdirSync(FOLDER).map(name => path.join(FOLDER, name)), DEMO_FILE];
const assets = new Map(
  files
    .filter(file => TYPES[path.extname(file)] !== undefined)
    .map(file => makeAsset(path.basename(file), readFileSync(file)))
    .map(asset => [asset.name, asset] as const),
);

function requireAsset(name: string) {
  const asset = assets.get(name);
  if (asset === undefined) throw new Error(`there is no asset ${name}`);
  return asset;
}

export function assetHref(prefix: string, name: string): string {
  return hrefOf(prefix, requireAsset(name));
}

export function hrefOf(prefix: string, { hash, name }: Asset): string {
  return `${prefix}/assets/${hash}/${name}`;
}

export function assetBytes(name: string): Buffer {
  return requireAsset(name).bytes;
}

/** An SVG that is opened by itself runs no script and loads nothing. */
const ASSET_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";

/** @param own the operator's assets, which replace those of the folder */
export function registerAssets(
  app: FastifyInstance,
  below: string,
  own: readonly Asset[] = [],
): void {
  app.get<{ Params: { hash: string; name: string } }>(
    `${below}/:hash/:name`,
    { config: { cookieless: true } },
    (request, reply) => {
      const { hash, name } = request.params;
      const asset = own.find(one => one.name === name) ?? assets.get(name);
      // Another hash names another release's file. A proxy must not keep this file under it.
      if (asset === undefined || asset.hash !== hash) {
        throw new ContractError('NOT_FOUND', 'There is no such asset.');
      }
      return reply
        .header('cache-control', `public, max-age=${YEAR_SECONDS}, immutable`)
        .header('cross-origin-resource-policy', 'same-origin')
        .header('content-security-policy', ASSET_POLICY)
        .header('x-content-type-options', 'nosniff')
        .type(asset.type)
        .send(asset.bytes);
    },
  );
}
