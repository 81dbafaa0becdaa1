/**
 * The repository's files that the service serves under /docs. Links to other files become text,
 * since readers have only the service.
 */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { DOCS_PATH } from '../page/html.ts';

const ROOT = new URL('../../../', import.meta.url);
const WRITTEN_ADDRESS = /http:\/\/127\.0\.0\.1:8080|https:\/\/matting\.example\.com/g;
/** Links to this file lead to the reference, whose pages are made from it. */
const OPENAPI_FILE = 'control-plane/core/http/openapi.json';
const FILES: Readonly<Record<string, string>> = {
  '.webp': 'image/webp',
  '.png': 'image/png',
  '.ts': 'text/plain; charset=utf-8',
  '.py': 'text/plain; charset=utf-8',
  '.go': 'text/plain; charset=utf-8',
};

export interface Guide {
  readonly group: 'Start' | 'Rules' | 'Tools' | 'Moving here';
  /** The page is /docs/NAME. */
  readonly name: string;
  readonly label: string;
  readonly about: string;
  readonly file: string;
}

export const GUIDES: readonly Guide[] = [
  guide('Start', 'rest', 'Tutorial', 'A first call; submit, webhook, download, delete; retries.'),
  guide(
    'Start',
    'cookbook',
    'Cookbook',
    'Recipes: marketplaces, uploads of users, a night of work.',
  ),
  guide('Start', 'models', 'Models', 'Which model for what, and how an operator adds some.'),
  guide('Start', 'errors', 'Errors', 'Every error code, and what to do.'),
  guide('Start', 'limits', 'Limits', 'The limits of a caller, and what all share.'),
  guide('Start', 'changes', 'Changes', 'What changed for callers, by version.'),
  guide('Rules', 'requests', 'Requests', 'Bodies, images by their URL, retries, models, checks.'),
  guide('Rules', 'jobs', 'Jobs and results', 'Wait, read, list, cancel, delete and download.'),
  guide(
    'Rules',
    'formats',
    'Image formats',
    'Formats, colours, damage, and what a result warns of.',
  ),
  guide('Rules', 'finishing', 'Finishing and hints', 'Crop, scale, background, shadow, strokes.'),
  guide(
    'Rules',
    'batches-and-corrections',
    'Batches and corrections',
    'Many images; free repairs.',
  ),
  guide('Rules', 'webhooks', 'Webhooks', 'Notifications, their signature, and why one failed.'),
  guide('Rules', 'keys', 'Credits, keys and rates', 'What an image costs, and what a key allows.'),
  {
    ...guide('Tools', 'client', 'TypeScript client', 'matting-client, which this service serves.'),
    file: 'client/README.md',
  },
  guide('Tools', 'remove', 'Folders', 'The command matting-remove, which cuts out folders.'),
  guide('Tools', 'agents', 'Agents', 'The same jobs as tools of the Model Context Protocol.'),
  guide('Moving here', 'removebg', 'From remove.bg', 'Its interface, and what differs.'),
  guide('Moving here', 'photoroom', 'From Photoroom', 'Its interface, and what differs.'),
  guide('Moving here', 'rembg', 'From rembg', "Its server's interface, and what differs."),
];

function guide(group: Guide['group'], name: string, label: string, about: string): Guide {
  return { group, name, label, about, file: `docs/${name}.md` };
}

export function guidePath({ name }: Guide): string {
  return `${DOCS_PATH}/${name}`;
}

/** Resolves a link. Undefined: the target has no page here, so the link becomes text. */
export type AddressOf = (target: string) => string | undefined;

export function addressesIn(file: string): AddressOf {
  return target => {
    if (/^(?:#|https:\/\/)/.test(target)) return target;
    const [to = '', anchor] = target.split('#');
    const resolved = path.posix.join(path.posix.dirname(file), to);
    const found = GUIDES.find(one => one.file === resolved);
    if (found !== undefined) return guidePath(found) + (anchor ? `#${anchor}` : '');
    if (resolved === OPENAPI_FILE) return `${DOCS_PATH}/matting`;
    const isFile = /^docs\/(?:images|examples)\/[\w.-]+$/.test(resolved);
    return isFile && FILES[path.extname(resolved)] ? `/${resolved}` : undefined;
  };
}

export function readGuide({ file }: Guide, baseUrl: string): string {
  const text = readFileSync(new URL(file, ROOT), 'utf8');
  return text.replaceAll(WRITTEN_ADDRESS, baseUrl);
}

/** Resolves the links of Markdown. Links without a page here become text. */
export function linkMarkdown(markdown: string, file: string): string {
  const addressOf = addressesIn(file);
  return markdown.replaceAll(
    /!?\[([^\]]+)\]\(([^)]+)\)/g,
    (link, words: string, target: string) => {
      const address = addressOf(target);
      return address === undefined ? words : link.replace(`(${target})`, `(${address})`);
    },
  );
}

interface GuideFile {
  readonly type: string;
  readonly read: () => Buffer;
}

export function guideFileAt(address: string): GuideFile | undefined {
  const type = FILES[path.extname(address)];
  if (type === undefined || !filesOfGuides().has(address)) return undefined;
  return { type, read: () => readFileSync(new URL(address.slice(1), ROOT)) };
}

let known: ReadonlySet<string> | undefined;

function filesOfGuides(): ReadonlySet<string> {
  known ??= new Set(
    GUIDES.flatMap(one => {
      const addressOf = addressesIn(one.file);
      const links = [...readGuide(one, '').matchAll(/\]\(([^)]+)\)/g)];
      const addresses = links.map(([, target = '']) => addressOf(target) ?? '');
      return addresses.filter(address => FILES[path.extname(address)] !== undefined);
    }),
  );
  return known;
}
