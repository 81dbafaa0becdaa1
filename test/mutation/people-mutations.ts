/** These guard who signs in and what they may: account area, sessions, links, the throttle. */
import { mutationsOf } from './mutation.ts';

export const PEOPLE_MUTATIONS = mutationsOf`
file control-plane/portal/session/guard.ts
tests control-plane/portal/page/pages.test.ts: the door
a route of the account area names nobody
  - if (named.filter(Boolean).length === 1) return;
  + if (named.length > 0) return;
  = lets no route start that names nobody, or two
tests control-plane/portal/test/attacks/every-route.test.ts: who may
every role may everything
  - if (!may(person.role, permission)) throw new AuthorityError('forbidden');
  = a viewer may what the role has, in the own account
tests control-plane/portal/test/attacks/people.test.ts: held forms
a form changes another account than its page shows
  - csrf: csrfTokenOf(secret, accountId),
  + csrf: csrfTokenOf(secret),
  = change no account but the one that their page was made for
tests control-plane/portal/test/attacks/every-route.test.ts: redirects
sign-in leads anywhere
  - return RETURN_PATH.test(text) &&
  + return
  = never leads elsewhere

file control-plane/portal/session/guard.ts
tests control-plane/portal/test/attacks/every-route.test.ts: other sites
a form of another site is taken
  - if (!isOwn) throw new PageError('otherOrigin');
  = a form without our Origin is refused
a form without its token is taken
  - if (!expected || !isSameText(given, expected)) throw new PageError('staleForm');
  = a form without the token of this session is refused
tests control-plane/portal/test/attacks/people.test.ts: held forms
who may is asked of the headers alone
  - await admitAgain();
  -     if (body
  + if (body
  = change no account but the one that their page was made for
who may is not asked again of a picture
  - await form.admitAgain();
  -   // Another window
  + // Another window
  = with a picture make no job once the person may not any more

file control-plane/portal/session/authority.ts
tests control-plane/portal/people/authority.test.ts: the authority of people on sqlite
a change does not ask whether the session lives
  - if (!(await takeSession(database, tx, accountId, actor))) return new AuthorityError('signed-out');
  + await takeSession(database, tx, accountId, actor);
  = makes nothing of who was signed out just now
a change does not ask whether the person is a member
  - return member?.disabled_at === null ? member.role : undefined;
  + return 'owner';
  = makes nothing of who was disabled just now
a change does not ask the role
  - if (!may(role, actor.permission)) return new AuthorityError('forbidden');
  = makes nothing of who was demoted just now
a person changes as often as they like
  - return waitS === 0 ?
  + return waitS >= 0 ?
  = bounds what one person changes in a minute, over all replicas

file control-plane/core/accounts/audit.ts
tests control-plane/portal/people/authority.test.ts: the authority of people on mysql
a membership ends while a change that asked for it is under way
  - await lockAccount(database, tx, accountId);
  = keeps the account and the session as they are until the change commits

file control-plane/portal/session/session-store.ts
tests control-plane/portal/people/people.test.ts: people who come in
anybody ends a session
  - db.deleteFrom('sessions').where('id', '=', sessionId).where('user_id', '=', userId),
  + db.deleteFrom('sessions').where('id', '=', sessionId),
  = see and end their sessions, and nobody else’s
tests control-plane/portal/test/attacks/people.test.ts: sessions
the session before goes on after a sign-in
  - await tx.deleteFrom('sessions').where('id_hash', '=', endedIdHash).execute();
  = signing in again ends the session that the browser had
tests control-plane/portal/people/links-and-passwords.test.ts: a password that changes on sqlite
the password before lets in who verified it in time
  - if (!isSame) return { kind: 'refused' };
  = lets nobody in by the one before it, whoever verified it in time

file control-plane/portal/people/link-store.ts
tests control-plane/portal/people/links-and-passwords.test.ts: who comes in by a link on sqlite
an invitation is accepted by who is not the person known by its mail
  - if (!isTheirs) return { refused: 'refused' };
  = BY_MAIL and SEEN: who is proven joins by their password, and by nothing else
a link sets a password again that became another
  - if (use.verifiedHash !== null && !isTheirs) return { refused: 'refused' };
  = BY_MAIL: a password that became another since it was shown is not set again
a mail that somebody typed joins another account
  - if (!person.isProven && !isMember(userId)) return { refused: 'unproven' };
  = SEEN: who is not proven joins no other account, even by their password
who typed a mail first stays its person when it is proven
  - if (link.proves_mail === 1 && !person.isProven) return { userId, is: 'taken-over' };
  = SIGN_IN: ends what was there of a mail that was never proven
sessions of who typed a mail first go on when it is proven
  - await tx.deleteFrom('sessions').where('user_id', '=', userId).execute();
  = SIGN_IN: ends what was there of a mail that was never proven

file control-plane/portal/people/invitations.ts
tests control-plane/portal/test/attacks/people.test.ts: a name that somebody typed
a link that its inviter saw proves the mail
  - const provesMail = letter !== undefined || actor.kind === 'operator';
  + const provesMail = true;
  = gives no way into the account of whoever has that mail later
tests control-plane/portal/test/attacks/people.test.ts: an invitation where there is a mail server
an inviter sees the link that goes by mail
  - url: mails ? undefined : made.url
  + url: made.url
  = is seen by its reader alone, whom it proves

file control-plane/portal/sign-in/use-links.ts
tests control-plane/portal/test/attacks/people.test.ts: a name that somebody typed
passwords are guessed without an end at an invitation
  - if (waitMs > 0) return { kind: 'throttled', waitMs };
  = is asked for the password, with a bound, before it joins

file control-plane/portal/people/people-store.ts
tests control-plane/portal/people/links-and-passwords.test.ts: who comes in by a link on sqlite
links live on without the right of who made them
  - isLess ? await endLinksOf(database, tx, accountId, member) : 0
  + 0
  = ends the links of who is removed or is no owner any more
tests control-plane/portal/people/links-and-passwords.test.ts: a password that changes on sqlite
a password is set over one that was set meanwhile
  - if (!isTheirs) return 'overtaken';
  = is set without the one before by the session of a link, once
a password is set by a session that has ended
  - if (session === undefined) return 'overtaken';
  + if (session === undefined) return 'set';
  = is not set by a session that has ended
tests control-plane/portal/people/people.test.ts: people
the last owner goes
  - if (member.role === 'owner' && owners.length === 1) return 'last-owner';
  = keep an owner

file control-plane/portal/sign-in/known-browsers.ts
tests control-plane/portal/test/attacks/people.test.ts: a name that somebody typed
a known browser outlives the password
  - const parts = [id, userId, passwordHash];
  + const parts = [id, userId];
  = has known browsers until the password is another, and few guesses by all of them

file control-plane/portal/sign-in/sign-in-throttle.ts
tests control-plane/portal/sign-in/sign-in.test.ts: the throttle of sign-in on sqlite
known browsers of a person have no bound together
  - [keyOf('browser', known), keyOf('browsers', password)]
  + [keyOf('browser', known)]
  = counts all known browsers of a person together

file control-plane/portal/sign-in/sign-in.ts
tests control-plane/portal/sign-in/sign-in.test.ts
who is known waits for a hash behind strangers
  - const knownId = throttle.knownId(attempt);
  + const knownId = undefined;
  = takes a slot of hashing as one who is known in a browser of theirs alone
tests control-plane/portal/sign-in/sign-in.test.ts: a sign-in that is refused
an unknown mail is refused without the work
  - const matches = await passwords
  + const matches = stored !== null && await passwords
  = has done the same work, whether the person is known or not

file control-plane/portal/sign-in/sign-in-throttle.ts
tests control-plane/portal/sign-in/sign-in.test.ts: the throttle of sign-in on sqlite
passwords are guessed without an end
  - if (waitMs > 0) return waitMs;
  = counts the attempts of all replicas, however many come at once

file control-plane/portal/sign-in/provider-sign-in.ts
tests control-plane/portal/sign-in/provider.test.ts
people of a provider are called as they say
  - mail: providerName(person),
  + mail: String(person.mail),
  = are called by what the provider says with its host, as nobody else can be
the provider is asked about forged ways back without an end
  - if (waitMs > 0) return { kind: 'throttled', waitMs };
  = have the provider asked few times an address for what is no way back of theirs

file control-plane/portal/sign-in/identity-entry.ts
tests control-plane/portal/sign-in/provider.test.ts
everybody whom a provider knows leaves rows here
  - if (grants.length === 0) return { kind: 'no-account' };
  = leave nothing here without a group of the list
who lost a group stays
  - if (is === undefined) await endMembership(tx, accountId, userId);
  + if (is === undefined) return;
  = may from now on what their groups say, and lose sessions with the group

file control-plane/portal/mails/send-mails.ts
tests control-plane/portal/mails/smtp-sender.test.ts
text with commas is several recipients
  - to: { name: '', address: mail.to },
  + to: mail.to,
  = have one recipient, whatever it is called
`;
