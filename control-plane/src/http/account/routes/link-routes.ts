/**
 * Invitations and sign-in links. Opening one shows what it would do; only the button's POST uses it
 * up.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { mailKeyOf } from '../../../domain/account/mail-address.ts';
import type { AcceptOutcome, FoundLink, Links } from '../../../services/people/links.ts';
import { wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { isSecret } from '../session/cookies.ts';
import { formOf, maybeSignedIn } from '../session/signed-in.ts';
import { notice } from '../views/components/marks.ts';
import { invitationForm, signInLinkForm } from '../views/people/sign-in-view.ts';
import { fill } from '../words/words.ts';
import { browserOf, csrfOfVisitor, letIn, minutesOf } from './browser.ts';

type LinkRequest = FastifyRequest<{ Params: { token: string } }>;

export function registerLinkRoutes(account: FastifyInstance, links: Links): void {
  const find = async ({ params }: LinkRequest, purpose: 'invitation' | 'sign-in') =>
    isSecret(params.token) ? links.find(params.token, purpose) : undefined;

  account.get<{ Params: { token: string } }>(
    '/links/:token',
    { config: { public: true } },
    async (request, reply) => {
      const link = await find(request, 'sign-in');
      if (link === undefined) return renderUnusable(request, reply, 'sign-in');
      const words = wordsOf(request);
      const csrf = csrfOfVisitor(request, reply);
      const action = `${ACCOUNT_PATH}/links/${request.params.token}`;
      const main = signInLinkForm({ ...link, words, csrf, action });
      return renderPage(request, reply, { title: words.signIn.title, main });
    },
  );
  account.post<{ Params: { token: string } }>(
    '/links/:token',
    { config: { public: true } },
    async (request, reply) => {
      const outcome = await links.signIn(request.params.token, browserOf(request));
      request.log.info({ outcome: outcome.kind, address: request.ip }, 'sign-in by a link');
      if (outcome.kind !== 'signed-in') return renderUnusable(request, reply, 'sign-in');
      letIn(reply, outcome);
      return reply.redirect(ACCOUNT_PATH, 303);
    },
  );
  account.get<{ Params: { token: string } }>(
    '/invitations/:token',
    { config: { public: true } },
    async (request, reply) => {
      const link = await find(request, 'invitation');
      if (link === undefined) return renderUnusable(request, reply, 'invitation');
      return renderInvitation(request, reply, link);
    },
  );
  account.post<{ Params: { token: string } }>(
    '/invitations/:token',
    { config: { public: true } },
    async (request, reply) => {
      const { token } = request.params;
      const by = { ...browserOf(request), userId: maybeSignedIn(request)?.userId };
      const password = formOf(request).text('password');
      const outcome = await links.acceptInvitation(token, password, by);
      request.log.info({ outcome: outcome.kind, address: request.ip }, 'invitation');
      if (outcome.kind === 'signed-in') {
        letIn(reply, outcome);
        return reply.redirect(ACCOUNT_PATH, 303);
      }
      return renderRefused(request, reply, await find(request, 'invitation'), outcome);
    },
  );
}

/** The same page whether somebody has that mail here or not: opening it tells nobody. */
function renderInvitation(
  request: LinkRequest,
  reply: FastifyReply,
  link: FoundLink,
  refused: { readonly error?: string; readonly status?: number } = {},
): FastifyReply {
  const words = wordsOf(request);
  const signedIn = maybeSignedIn(request);
  const isTheirs = signedIn !== undefined && mailKeyOf(signedIn.mail) === mailKeyOf(link.mail);
  return renderPage(request, reply, {
    title: words.invitation.title,
    status: refused.status ?? 200,
    main: invitationForm({
      ...link,
      words,
      csrf: csrfOfVisitor(request, reply),
      action: `${ACCOUNT_PATH}/invitations/${request.params.token}`,
      roleName: words.roles[link.role],
      anotherPerson: isTheirs ? undefined : signedIn?.mail,
      isSignedIn: isTheirs,
      error: refused.error,
    }),
  });
}

function renderRefused(
  request: LinkRequest,
  reply: FastifyReply,
  link: FoundLink | undefined,
  outcome: Exclude<AcceptOutcome, { readonly kind: 'signed-in' }>,
): FastifyReply {
  if (link === undefined) return renderUnusable(request, reply, 'invitation');
  const { invitation, profile, signIn } = wordsOf(request);
  const refuse = (error?: string, status = 422) =>
    renderInvitation(request, reply, link, { status, ...(error === undefined ? {} : { error }) });
  switch (outcome.kind) {
    case 'unknown':
      return renderUnusable(request, reply, 'invitation');
    case 'another-person':
      return refuse();
    case 'bad-password':
      return refuse(profile.faults[outcome.fault]);
    case 'throttled':
      reply.header('retry-after', String(Math.ceil(outcome.waitMs / 1000)));
      return refuse(fill(signIn.throttled, { minutes: minutesOf(outcome.waitMs) }), 429);
    case 'refused':
    case 'unproven':
      return refuse(invitation[outcome.kind]);
    case 'account-full':
      return refuse(invitation.full);
  }
}

function renderUnusable(
  request: FastifyRequest,
  reply: FastifyReply,
  purpose: 'invitation' | 'sign-in',
): FastifyReply {
  const { invitation, signIn } = wordsOf(request);
  const isInvitation = purpose === 'invitation';
  return renderPage(request, reply, {
    title: isInvitation ? invitation.title : signIn.title,
    status: 404,
    main: notice('warning', isInvitation ? invitation.unknown : signIn.linkUnknown),
  });
}
