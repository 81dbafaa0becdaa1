/** Who signs in and what they may: the guard of the account area, sessions, links, the throttle. */
import { inFile, type Mutation } from './mutation.ts';

const GUARD = 'control-plane/src/http/account/session/guard.ts';
const DOOR = 'control-plane/src/http/account/session/account-door.ts';
const SESSIONS = 'control-plane/src/store/people/session-store.ts';
const LINK_USE = 'control-plane/src/store/people/link-use.ts';

const HTTP_TESTS = 'control-plane/test/http/account';
const inGuard = inFile(`${HTTP_TESTS}/guard.test.ts`, 'the guard of the account area');
const inReturn = inFile(`${HTTP_TESTS}/attacks/open-redirects.test.ts`, 'redirects of sign-in');
const inForged = inFile(
  `${HTTP_TESTS}/attacks/forged-requests.test.ts`,
  'requests that other sites forge',
);
const inMatrix = inFile(`${HTTP_TESTS}/attacks/access-matrix.test.ts`, 'who may do what');
const inSessions = inFile(`${HTTP_TESTS}/attacks/sessions.test.ts`, 'sessions under attack');
const inSignIn = inFile(`${HTTP_TESTS}/sign-in.test.ts`, 'people who sign in');
const inPeople = inFile(`${HTTP_TESTS}/people.test.ts`, 'the people of an account');
const inProvider = inFile(
  `${HTTP_TESTS}/provider.test.ts`,
  'people whom an identity provider knows',
);
const inHeldForms = inFile(`${HTTP_TESTS}/attacks/held-forms.test.ts`, 'forms that are held');
const inTypedNames = inFile(
  `${HTTP_TESTS}/attacks/typed-names.test.ts`,
  'a name that somebody typed',
);
const inMailed = inFile(
  `${HTTP_TESTS}/attacks/typed-names.test.ts`,
  'an invitation where there is a mail server',
);
const inLinks = inFile(
  'control-plane/test/store/people/link-use.test.ts',
  'who comes in by a link on sqlite',
);
const inPasswords = inFile(
  'control-plane/test/store/people/passwords.test.ts',
  'a password that changes on sqlite',
);
const AUTHORITY = 'control-plane/src/store/people/authority.ts';
const inAuthorityOnServer = inFile(
  'control-plane/test/store/people/authority.test.ts',
  'the authority of people on mysql',
);
const inAuthority = inFile(
  'control-plane/test/store/people/authority.test.ts',
  'the authority of people on sqlite',
);
const inSmtp = inFile('control-plane/test/mail/smtp-sender.test.ts', 'mails by SMTP');
const SIGN_IN_TESTS = 'control-plane/test/services/people/sign-in.test.ts';
const inThrottle = inFile(SIGN_IN_TESTS, 'the throttle of sign-in on sqlite');
const inRefusal = inFile(SIGN_IN_TESTS, 'a sign-in that is refused');

export const PEOPLE_MUTATIONS: readonly Mutation[] = [
  {
    name: 'a route of the account area names nobody',
    file: DOOR,
    find: 'if (named.filter(Boolean).length === 1) return;',
    replace: 'if (named.length > 0) return;',
    caughtBy: inGuard('lets no route start that names nobody, or two'),
  },
  {
    name: 'a form of another site is taken',
    file: GUARD,
    find: "if (!isOwn) throw new PageError('otherOrigin');",
    replace: '',
    caughtBy: inForged('a form without our Origin is refused'),
  },
  {
    name: 'a form without its token is taken',
    file: GUARD,
    find: "if (!expected || !isSameText(given, expected)) throw new PageError('staleForm');",
    replace: '',
    caughtBy: inForged('a form without the token of this session is refused'),
  },
  {
    name: 'every role may everything',
    file: DOOR,
    find: "if (!may(person.role, permission)) throw new AuthorityError('forbidden');",
    replace: '',
    caughtBy: inMatrix('a viewer may what the role has, in the own account'),
  },
  {
    name: 'who may is asked of the headers alone',
    file: GUARD,
    find: 'await admitAgain();\n    if (body',
    replace: 'if (body',
    caughtBy: inHeldForms('change no account but the one that their page was made for'),
  },
  {
    name: 'who may is not asked again of a picture',
    file: GUARD,
    find: 'await form.admitAgain();\n  // Another window',
    replace: '// Another window',
    caughtBy: inHeldForms('with a picture make no job once the person may not any more'),
  },
  {
    name: 'a change does not ask whether the session lives',
    file: AUTHORITY,
    find: "if (!(await takeSession(database, tx, accountId, actor))) return new AuthorityError('signed-out');",
    replace: 'await takeSession(database, tx, accountId, actor);',
    caughtBy: inAuthority('makes nothing of who was signed out just now'),
  },
  {
    name: 'a change does not ask whether the person is a member',
    file: AUTHORITY,
    find: 'return member?.disabled_at === null ? member.role : undefined;',
    replace: "return 'owner';",
    caughtBy: inAuthority('makes nothing of who was disabled just now'),
  },
  {
    name: 'a membership ends while a change that asked for it is under way',
    file: AUTHORITY,
    find: 'await lockAccount(database, tx, accountId);',
    replace: '',
    caughtBy: inAuthorityOnServer(
      'keeps the account and the session as they are until the change commits',
    ),
  },
  {
    name: 'a change does not ask the role',
    file: AUTHORITY,
    find: "if (!may(role, actor.permission)) return new AuthorityError('forbidden');",
    replace: '',
    caughtBy: inAuthority('makes nothing of who was demoted just now'),
  },
  {
    name: 'a person changes as often as they like',
    file: AUTHORITY,
    find: 'return waitS === 0 ?',
    replace: 'return waitS >= 0 ?',
    caughtBy: inAuthority('bounds what one person changes in a minute, over all replicas'),
  },
  {
    name: 'a form changes another account than its page shows',
    file: DOOR,
    find: 'csrf: csrfTokenOf(secret, accountId),',
    replace: 'csrf: csrfTokenOf(secret),',
    caughtBy: inHeldForms('change no account but the one that their page was made for'),
  },
  {
    name: 'sign-in leads anywhere',
    file: DOOR,
    find: 'return RETURN_PATH.test(text) && ',
    replace: 'return ',
    caughtBy: inReturn('never leads elsewhere'),
  },
  {
    name: 'anybody ends a session',
    file: SESSIONS,
    find: "          .where('user_id', '=', userId)\n          .executeTakeFirstOrThrow();",
    replace: '          .executeTakeFirstOrThrow();',
    caughtBy: inSignIn('see and end their sessions, and nobody else’s'),
  },
  {
    name: 'the session before goes on after a sign-in',
    file: SESSIONS,
    find: "await tx.deleteFrom('sessions').where('id_hash', '=', endedIdHash).execute();",
    replace: '',
    caughtBy: inSessions('signing in again ends the session that the browser had'),
  },
  {
    name: 'an invitation is accepted by who is not the person known by its mail',
    file: LINK_USE,
    find: "if (!isTheirs) return { refused: 'refused' };",
    replace: '',
    caughtBy: inLinks(
      'BY_MAIL and SEEN: who is proven joins by their password, and by nothing else',
    ),
  },
  {
    name: 'a link sets a password again that became another',
    file: LINK_USE,
    find: "if (use.verifiedHash !== null && !isTheirs) return { refused: 'refused' };",
    replace: '',
    caughtBy: inLinks(
      'BY_MAIL: a password that became another since it was shown is not set again',
    ),
  },
  {
    name: 'a mail that somebody typed joins another account',
    file: LINK_USE,
    find: "if (!person.isProven && !isMember(userId)) return { refused: 'unproven' };",
    replace: '',
    caughtBy: inLinks('SEEN: who is not proven joins no other account, even by their password'),
  },
  {
    name: 'who typed a mail first stays its person when it is proven',
    file: LINK_USE,
    find: "if (provesMail(link) && !person.isProven) return { userId, is: 'taken-over' };",
    replace: '',
    caughtBy: inLinks('SIGN_IN: ends what was there of a mail that was never proven'),
  },
  {
    name: 'sessions of who typed a mail first go on when it is proven',
    file: LINK_USE,
    find: "await tx.deleteFrom('sessions').where('user_id', '=', userId).execute();",
    replace: '',
    caughtBy: inLinks('SIGN_IN: ends what was there of a mail that was never proven'),
  },
  {
    name: 'a link that its inviter saw proves the mail',
    file: 'control-plane/src/services/people/links.ts',
    find: "const provesMail = letter !== undefined || actor.kind === 'operator';",
    replace: 'const provesMail = true;',
    caughtBy: inTypedNames('gives no way into the account of whoever has that mail later'),
  },
  {
    name: 'an inviter sees the link that goes by mail',
    file: 'control-plane/src/services/people/links.ts',
    find: 'url: mails ? undefined : made.url',
    replace: 'url: made.url',
    caughtBy: inMailed('is seen by its reader alone, whom it proves'),
  },
  {
    name: 'passwords are guessed without an end at an invitation',
    file: 'control-plane/src/services/people/links.ts',
    find: "if (waitMs > 0) return { kind: 'throttled', waitMs };",
    replace: '',
    caughtBy: inTypedNames('is asked for the password, with a bound, before it joins'),
  },
  {
    name: 'links live on without the right of who made them',
    file: 'control-plane/src/store/people/people-store.ts',
    find: 'isLess ? await endLinksOf(database, tx, accountId, member) : 0',
    replace: '0',
    caughtBy: inLinks('ends the links of who is removed or is no owner any more'),
  },
  {
    name: 'the password before lets in who verified it in time',
    file: SESSIONS,
    find: "if (!isSame) return { kind: 'refused' };",
    replace: '',
    caughtBy: inPasswords('lets nobody in by the one before it, whoever verified it in time'),
  },
  {
    name: 'a password is set over one that was set meanwhile',
    file: 'control-plane/src/store/people/people-store.ts',
    find: "if (!isTheirs) return 'overtaken';",
    replace: '',
    caughtBy: inPasswords('is set without the one before by the session of a link, once'),
  },
  {
    name: 'a password is set by a session that has ended',
    file: 'control-plane/src/store/people/people-store.ts',
    find: "if (session === undefined) return 'overtaken';",
    replace: "if (session === undefined) return 'set';",
    caughtBy: inPasswords('is not set by a session that has ended'),
  },
  {
    name: 'a known browser outlives the password',
    file: 'control-plane/src/services/people/sign-in-throttle.ts',
    find: 'const parts = [id, userId, passwordHash];',
    replace: 'const parts = [id, userId];',
    caughtBy: inTypedNames(
      'has known browsers until the password is another, and few guesses by all of them',
    ),
  },
  {
    name: 'who is known waits for a hash behind strangers',
    file: 'control-plane/src/services/people/sign-in.ts',
    find: 'const knownId = throttle.knownId(attempt);',
    replace: 'const knownId = undefined;',
    caughtBy: inFile(SIGN_IN_TESTS)(
      'takes a turn of hashing as one who is known in a browser of theirs alone',
    ),
  },
  {
    name: 'known browsers of a person have no bound together',
    file: 'control-plane/src/services/people/sign-in-throttle.ts',
    find: "[keyOf('browser', known), keyOf('browsers', password)]",
    replace: "[keyOf('browser', known)]",
    caughtBy: inThrottle('counts all known browsers of a person together'),
  },
  {
    name: 'the last owner goes',
    file: 'control-plane/src/store/people/people-store.ts',
    find: "if (member.role === 'owner' && owners.length === 1) return 'last-owner';",
    replace: '',
    caughtBy: inPeople('keep an owner'),
  },
  {
    name: 'passwords are guessed without an end',
    file: 'control-plane/src/store/people/sign-in-throttle.ts',
    find: 'if (waitMs > 0) return waitMs;',
    replace: '',
    caughtBy: inThrottle('counts the attempts of all replicas, however many come at once'),
  },
  {
    name: 'an unknown mail is refused without the work',
    file: 'control-plane/src/services/people/sign-in.ts',
    find: 'const matches = await passwords',
    replace: 'const matches = stored !== null && await passwords',
    caughtBy: inRefusal('has done the same work, whether the person is known or not'),
  },
  {
    name: 'people of a provider are called as they say',
    file: 'control-plane/src/services/people/provider-sign-in.ts',
    find: 'mail: providerName(person),',
    replace: 'mail: String(person.mail),',
    caughtBy: inProvider(
      'are called by what the provider says with its host, as nobody else can be',
    ),
  },
  {
    name: 'everybody whom a provider knows leaves rows here',
    file: 'control-plane/src/store/people/identity-entry.ts',
    find: "if (grants.length === 0) return { kind: 'no-account' };",
    replace: '',
    caughtBy: inProvider('leave nothing here without a group of the list'),
  },
  {
    name: 'the provider is asked about forged ways back without an end',
    file: 'control-plane/src/services/people/provider-sign-in.ts',
    find: "if (waitMs > 0) return { kind: 'throttled', waitMs };",
    replace: '',
    caughtBy: inProvider(
      'have the provider asked few times an address for what is no way back of theirs',
    ),
  },
  {
    name: 'text with commas is several recipients',
    file: 'control-plane/src/mail/smtp-sender.ts',
    find: "to: { name: '', address: mail.to },",
    replace: 'to: mail.to,',
    caughtBy: inSmtp('have one recipient, whatever it is called'),
  },
  {
    name: 'who lost a group stays',
    file: 'control-plane/src/store/people/identity-entry.ts',
    find: 'if (is === undefined) await endMembership(tx, accountId, userId);',
    replace: 'if (is === undefined) return;',
    caughtBy: inProvider('may from now on what their groups say, and lose sessions with the group'),
  },
];
