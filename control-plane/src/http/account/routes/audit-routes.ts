/** The log of what was changed in an account, for its owners. */
import type { FastifyInstance } from 'fastify';
import type { AuditPlace, AuditRecord, Members } from '../../../services/people/members.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { signedInOf } from '../session/signed-in.ts';
import { auditPage } from '../views/people/audit-view.ts';

const PAGE_ROWS = 50;
const PLACE = /^(\d{1,15})\.([0-9a-f-]{36})$/;

export function registerAuditRoutes(account: FastifyInstance, members: Members): void {
  account.get('/audit', { config: { permission: 'audit.read' } }, async (request, reply) => {
    const { accountId } = signedInOf(request);
    const { after: text } = request.query as Record<string, unknown>;
    const after = placeOf(text);
    const rows = await members.log(accountId, { limit: PAGE_ROWS + 1, after });
    const last = rows.length > PAGE_ROWS ? rows[PAGE_ROWS - 1] : undefined;
    const path = `${ACCOUNT_PATH}/audit`;
    const words = wordsOf(request);
    return renderPage(request, reply, {
      title: words.audit.title,
      lead: words.audit.lead,
      active: 'audit',
      main: auditPage({
        words,
        formats: formatsOf(request),
        rows: rows.slice(0, PAGE_ROWS),
        next: last && `${path}?after=${placeIn(last)}`,
        first: after && path,
      }),
    });
  });
}

function placeIn({ atMs, id }: AuditRecord): string {
  return `${atMs}.${id}`;
}

/** Undefined for what is none: the first page. */
function placeOf(text: unknown): AuditPlace | undefined {
  const [, atMs, id] = typeof text === 'string' ? (PLACE.exec(text) ?? []) : [];
  return atMs === undefined || id === undefined ? undefined : { atMs: Number(atMs), id };
}
