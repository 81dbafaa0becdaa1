/**
 * The style sheet, the scripts and the icon of the pages: read once, served under the hash of
 * their bytes, so that a browser keeps each for good and never mixes those of two releases.
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { FastifyInstance } from 'fastify';
import { ContractError } from '#contract/errors.ts';

const FOLDER = path.join(import.meta.dirname, '../assets');
const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.jpg': 'image/jpeg',
};
const YEAR_SECONDS = 31_536_000;
/** Of SHA-256 in hexadecimal digits: two files of a name are never alike in them. */
const HASH_DIGITS = 16;

/** Every file of the folder that a browser loads, by its name. */
const assets = new Map(
  readdirSync(FOLDER).flatMap(name => {
    const type = TYPES[path.extname(name)];
    if (type === undefined) return [];
    const bytes = readFileSync(path.join(FOLDER, name));
    const hash = createHash('sha256').update(bytes).digest('hex').slice(0, HASH_DIGITS);
    return [[name, { hash, type, bytes }] as const];
  }),
);

/**
 * The address of an asset below `prefix`.
 * @throws Error for a name that is no file of the folder: a mistake of the page
 */
export function assetHref(prefix: string, name: string): string {
  const asset = assets.get(name);
  if (asset === undefined) throw new Error(`there is no asset ${name}`);
  return `${prefix}/assets/${asset.hash}/${name}`;
}

/** GET `<path>/<hash>/<name>`, for everyone. */
export function registerAssets(app: FastifyInstance, below: string): void {
  app.get<{ Params: { hash: string; name: string } }>(
    `${below}/:hash/:name`,
    { config: { cookieless: true } },
    (request, reply) => {
      const { hash, name } = request.params;
      const asset = assets.get(name);
      // Another hash is another release's file: a proxy must not keep this one under it.
      if (asset === undefined || asset.hash !== hash) {
        throw new ContractError('NOT_FOUND', 'there is no such asset');
      }
      return reply
        .header('cache-control', `public, max-age=${YEAR_SECONDS}, immutable`)
        .header('cross-origin-resource-policy', 'same-origin')
        .type(asset.type)
        .send(asset.bytes);
    },
  );
}
