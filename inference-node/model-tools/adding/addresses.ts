/** Reads from an address whether it moves, and the name of its model. */
import { FILE_NAME_FORM } from '@matting/serving/models/manifest.ts';
import type { AddressClient } from '../weights/address.ts';

/** huggingface.co, its mirrors and modelscope.cn: <owner>/<repository>/resolve/<revision>/<path>. */
const RESOLVED = /^((?:\/[^/]+)+\/resolve\/)([^/]+)(\/.+)$/;
const COMMIT = /^[0-9a-f]{40}$/;
/** Addresses of GitHub that move: a branch's file, and the latest release. */
const MOVING = [
  /^https:\/\/raw\.githubusercontent\.com\/[^/]+\/[^/]+\/(?![0-9a-f]{40}\/)/,
  /^https:\/\/github\.com\/[^/]+\/[^/]+\/(raw|blob)\/(?![0-9a-f]{40}\/)/,
  /^https:\/\/github\.com\/[^/]+\/[^/]+\/releases\/latest\//,
];

interface PinnedAddress {
  readonly url: string;
  readonly revision?: string;
  /** The file may be another one tomorrow, under the same address. */
  readonly moves: boolean;
}

/**
 * Finds the commit that a branch or tag of the Hub stands for now. The answer to a HEAD has it in
 * X-Repo-Commit, and so has a redirect to the Hub's storage or to a renamed repository.
 * @throws ModelError; InterruptedError
 */
export async function pinAddress(
  client: AddressClient,
  address: string,
  signal: AbortSignal,
): Promise<PinnedAddress> {
  const url = new URL(address);
  const [, before, revision, path] = RESOLVED.exec(url.pathname) ?? [];
  if (revision === undefined) {
    return { url: address, moves: MOVING.some(form => form.test(address)) };
  }
  if (COMMIT.test(revision)) return { url: address, revision, moves: false };
  const commit = await client.findCommit(address, signal);
  if (commit === undefined) return { url: address, moves: true };
  url.pathname = `${before}${commit}${path}`;
  return { url: url.href, revision: commit, moves: false };
}

/** The file's own name where it may be one in the cache. */
export function fileNameOf(path: string): string {
  const name = decodeName(path.split('/').at(-1) ?? '');
  return FILE_NAME_FORM.test(name) && name.endsWith('.onnx') ? name : 'model.onnx';
}

/** Hosts of models call every file so. */
const SAYS_NOTHING =
  /^(model|onnx|network|weights)([_-]?(fp16|fp32|uint8|int8|quantized|q4f?16?))?$/;
const NAME_MAX = 64;

/** A model's name, of its file's; of its repository's where that says nothing. */
export function nameOf(path: string): string | undefined {
  const parts = path.split('/').map(decodeName);
  const file = (parts.at(-1) ?? '').replace(/\.onnx$/i, '');
  const at = parts.indexOf('resolve');
  const repository = at > 0 ? parts[at - 1] : undefined;
  const form = SAYS_NOTHING.exec(file.toLowerCase());
  if (form === null) return slug(file);
  return repository === undefined ? undefined : slug(`${repository} ${form[3] ?? ''}`);
}

function slug(text: string): string | undefined {
  const name = text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-+|-+$/g, '');
  return name.slice(0, NAME_MAX).replace(/-+$/, '') || undefined;
}

function decodeName(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
