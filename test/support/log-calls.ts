import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');

const PROGRAMS = '{control-plane,inference-node,program}/**/*.ts';
const CALL = /[lL]og(?:ger)?\??\.(trace|debug|info|warn|error|fatal)\(|#say\('(info|warn)', /g;
const LITERAL = /'((?:[^'\\\n]|\\.)+)'/g;

/** Messages of log calls in the sources with their levels; composed messages are left out. */
export function loggedMessages(): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  const files = globSync(PROGRAMS, {
    cwd: ROOT,
    exclude: ['**/test/**', '**/*.test.ts', '**/*.storm.ts', 'inference-node/kernels/**'],
  });
  for (const file of files) {
    const text = readFileSync(path.join(ROOT, file), 'utf8');
    for (const call of text.matchAll(CALL)) {
      const level = call[1] ?? call[2] ?? '';
      const from = call.index + call[0].length;
      for (const message of messagesOf(argumentsFrom(text, from), call[2] !== undefined)) {
        const levels = found.get(message) ?? new Set();
        found.set(message, levels.add(level));
      }
    }
  }
  return found;
}

/** The message is the last argument, or the first if fields follow. */
function messagesOf(parts: readonly string[], first: boolean): string[] {
  const message = first ? parts[0] : parts.at(-1);
  if (message === undefined || message.trim().startsWith('{')) return [];
  return [...message.matchAll(LITERAL)].map(([, literal]) => String(literal));
}

function argumentsFrom(text: string, start: number): string[] {
  const parts: string[] = [];
  let from = start;
  let depth = 1;
  let quoted: string | undefined;
  for (let at = from; at < text.length; at += 1) {
    const sign = String(text[at]);
    if (quoted !== undefined) {
      if (sign === quoted && text[at - 1] !== '\\') quoted = undefined;
    } else if (sign === "'" || sign === '`') quoted = sign;
    else if ('({['.includes(sign)) depth += 1;
    else if (')}]'.includes(sign)) depth -= 1;
    if (depth === 0 || (sign === ',' && depth === 1 && quoted === undefined)) {
      parts.push(text.slice(from, at));
      from = at + 1;
    }
    if (depth === 0) return parts.filter(part => part.trim() !== '');
  }
  throw new Error('a call without an end');
}
