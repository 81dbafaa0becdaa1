/** CSV (RFC 4180) that a spreadsheet opens without running it. */

import type { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';

/** Signs that begin a formula (OWASP), in Chinese or Japanese also full width signs. */
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

/** An apostrophe before a formula's sign disarms it (OWASP, CSV injection). */
export function csvLine(cells: readonly (string | number)[]): string {
  const text = cells.map(cell => {
    if (typeof cell === 'number') return String(cell);
    const safe = FORMULA.test(cell) ? `'${cell}` : cell;
    return `"${safe.replaceAll('"', '""')}"`;
  });
  return `${text.join(',')}\r\n`;
}

export function sendCsv(reply: FastifyReply, name: string, body: string | Readable): FastifyReply {
  return reply
    .headers({
      'content-type': 'text/csv; charset=utf-8; header=present',
      'content-disposition': `attachment; filename="${name}"`,
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    })
    .send(body);
}
