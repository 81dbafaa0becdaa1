/**
 * The people of an account, for its owners: invite, change a role, remove, and end the API keys of
 * who was removed.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { parseMail } from '../../../domain/account/mail-address.ts';
import { isRole } from '../../../domain/account/roles.ts';
import type { ManageKeys } from '../../../services/keys/manage-keys.ts';
import type { Links } from '../../../services/people/links.ts';
import type { MemberChange, Members } from '../../../services/people/members.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { PageError } from '../session/page-error.ts';
import { formOf, signedInOf } from '../session/signed-in.ts';
import { type PeopleProps, peoplePage } from '../views/people/people-view.ts';

const MANAGE = { config: { permission: 'people.manage' } } as const;

export interface PeopleRouteServices {
  readonly members: Members;
  readonly links: Links;
  readonly manageKeys: ManageKeys;
}

export function registerPeopleRoutes(
  account: FastifyInstance,
  services: PeopleRouteServices,
): void {
  const { members, links, manageKeys } = services;
  account.get('/people', MANAGE, (request, reply) => {
    const { removed } = request.query as Record<string, unknown>;
    const of = typeof removed === 'string' ? { removed } : {};
    return renderPeople(request, reply, services, of);
  });
  account.post('/people/invite', MANAGE, (request, reply) => invite(request, reply, services));
  account.post<{ Params: { id: string } }>('/people/:id/role', MANAGE, async (request, reply) => {
    const role = formOf(request).text('role');
    if (!isRole(role)) throw new PageError('badForm');
    const { accountId, actor } = signedInOf(request);
    const change = await members.changeRole(accountId, request.params.id, role, actor);
    return answerChange(request, reply, services, change, 'roleChanged');
  });
  account.post<{ Params: { id: string } }>('/people/:id/remove', MANAGE, async (request, reply) => {
    const { accountId, actor } = signedInOf(request);
    const change = await members.remove(accountId, request.params.id, actor);
    return answerChange(request, reply, services, change, 'removed');
  });
  account.post<{ Params: { id: string } }>(
    '/people/:id/revoke-keys',
    MANAGE,
    async (request, reply) => {
      const { accountId, actor } = signedInOf(request);
      const revoked = await manageKeys.revokeMadeBy(accountId, request.params.id, actor);
      if (!revoked) throw new PageError('notFound');
      return reply.redirect(`${ACCOUNT_PATH}/people?said=keysRevoked`, 303);
    },
  );
  account.post<{ Params: { id: string } }>(
    '/people/invitations/:id/withdraw',
    MANAGE,
    async (request, reply) => {
      const { accountId, actor } = signedInOf(request);
      const withdrawn = await links.withdraw(accountId, request.params.id, actor);
      if (!withdrawn) throw new PageError('notFound');
      return reply.redirect(`${ACCOUNT_PATH}/people?said=withdrawn`, 303);
    },
  );
}

/** The link is on this answer and nowhere else, or in the mail and nowhere else. */
async function invite(
  request: FastifyRequest,
  reply: FastifyReply,
  services: PeopleRouteServices,
): Promise<FastifyReply> {
  const form = formOf(request);
  const given = { mail: form.text('mail'), role: form.text('role') };
  const { people } = wordsOf(request);
  const mail = parseMail(given.mail);
  const role = isRole(given.role) ? given.role : undefined;
  if (mail === undefined || role === undefined) {
    const errors = {
      mail: mail === undefined ? people.badMail : undefined,
      role: role === undefined ? people.badRole : undefined,
    };
    return renderPeople(request, reply, services, { invite: { ...given, errors } });
  }
  const { accountId, accountName, actor } = signedInOf(request);
  const made = await services.links.invite(accountId, { mail, role, accountName }, actor);
  if (typeof made === 'string') {
    const errors = { mail: people.refusedInvitation[made] };
    return renderPeople(request, reply, services, { invite: { ...given, errors } });
  }
  const untilMs = Date.now() + made.lifeMs;
  return renderPeople(request, reply, services, { made: { mail, url: made.url, untilMs } });
}

async function answerChange(
  request: FastifyRequest<{ Params: { id: string } }>,
  reply: FastifyReply,
  services: PeopleRouteServices,
  change: MemberChange,
  said: 'roleChanged' | 'removed',
): Promise<FastifyReply> {
  if (change === 'changed') {
    // Their keys live on: the page says which.
    const of = said === 'removed' ? `&removed=${encodeURIComponent(request.params.id)}` : '';
    return reply.redirect(`${ACCOUNT_PATH}/people?said=${said}${of}`, 303);
  }
  if (change === 'unknown') throw new PageError('notFound');
  return renderPeople(request, reply, services, {
    problem: wordsOf(request).people.refused[change],
  });
}

async function renderPeople(
  request: FastifyRequest,
  reply: FastifyReply,
  { members, links, manageKeys }: PeopleRouteServices,
  {
    removed,
    ...more
  }: Pick<PeopleProps, 'invite' | 'made' | 'problem'> & { readonly removed?: string } = {},
): Promise<FastifyReply> {
  const { accountId, csrf, userId } = signedInOf(request);
  const rows = await members.list(accountId);
  const open = await links.listOpen(accountId);
  const keys =
    removed === undefined || rows.some(row => row.userId === removed)
      ? []
      : await manageKeys.listMadeBy(accountId, removed);
  const words = wordsOf(request);
  const isWrong = more.invite !== undefined || more.problem !== undefined;
  return renderPage(request, reply, {
    title: words.people.title,
    lead: words.people.lead,
    active: 'people',
    status: isWrong ? 422 : 200,
    said: words.people.said,
    main: peoplePage({
      words,
      formats: formatsOf(request),
      csrf,
      members: rows.map(({ source, ...row }) => ({
        ...row,
        byGroup: source === 'oidc',
        isSelf: row.userId === userId,
      })),
      invitations: open.filter(({ purpose }) => purpose === 'invitation'),
      signInLinks: open.filter(({ purpose }) => purpose === 'sign-in'),
      byMail: links.byMail,
      keysLeft: keys.length === 0 ? undefined : { userId: removed ?? '', keys },
      ...more,
    }),
  });
}
