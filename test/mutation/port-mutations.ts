/** What strangers may hold of a port: places, seconds, guesses. */
import { inFile, type Mutation } from './mutation.ts';

const ROOM = 'program/ports/http-guard.ts';
const PASSWORDS = 'control-plane/src/identity/passwords.ts';
const inTurns = inFile('control-plane/test/identity/passwords.test.ts', 'turns of hashing');
const HALF_SENT = 'control-plane/test/http/connections/half-sent-forms.test.ts';
const inBodies = inFile('program/ports/test/http-guard.test.ts', 'bodies on their way');
const inPlaces = inFile('program/ports/test/http-guard.test.ts', 'a port with few places left');
const inPublic = inFile(HALF_SENT, 'half-sent forms on the public port');
const inOperator = inFile(HALF_SENT, "half-sent forms on the operator's port");
const inKeys = inFile('program/test/semaphore.test.ts', 'keys of a semaphore');

export const PORT_MUTATIONS: readonly Mutation[] = [
  {
    name: 'as many wait for a semaphore as come',
    file: 'program/semaphore.ts',
    find: 'if (own >= waitingMax - this.#waiting) throw refusal();',
    replace: 'void [own, waitingMax, refusal];',
    caughtBy: inKeys('whose callers all wait leave others room to wait'),
  },
  {
    name: 'one key takes all of a semaphore',
    file: 'program/semaphore.ts',
    find: 'this.heldBy(use.key) < free',
    replace: 'free > 0',
    caughtBy: inKeys('that hold their share keep no other out'),
  },
  {
    name: 'strangers may have as many connections to a gRPC port as they like',
    file: 'program/ports/grpc-guard.ts',
    find: 'if (this.#strangers > this.#bounds.strangersMax) this.#makeRoom();',
    replace: '',
    caughtBy: inFile(
      'control-plane/test/nodes/registry-strangers.test.ts',
      'a connection to the registry',
    )('without the token keeps no node out'),
  },
  {
    name: 'strangers may have as many bodies on their way as they like',
    file: ROOM,
    find: 'if (bodies.size > max) this.#end(',
    replace: 'if (bodies.size < 0) this.#end(',
    caughtBy: inBodies('of the network with most of them go first, its oldest before the others'),
  },
  {
    name: 'a body that is whole is taken for one that is on its way',
    file: ROOM,
    find: 'this.#awaited.get(least)?.complete !== true',
    replace: 'least !== null',
    caughtBy: inBodies('that are whole and unread are never the ones to go'),
  },
  {
    name: 'who is known makes room before strangers',
    file: ROOM,
    find: 'this.#least(this.#strangers) ?? this.#least(this.#accounts)',
    replace: 'this.#least(this.#accounts) ?? this.#least(this.#strangers)',
    caughtBy: inPlaces('asks accounts last, and of them the one with most'),
  },
  {
    name: 'a connection whose body is awaited makes no room',
    file: 'control-plane/src/http/connections/connections.ts',
    find: 'room.awaitBody(request.raw, reply.raw, owner);',
    replace: 'void [room, owner, reply];',
    caughtBy: inPublic('from one network keep no caller with a key out, and no form that is sent'),
  },
  {
    name: "the operator's port awaits bodies without a bound",
    file: 'control-plane/src/http/operator-app.ts',
    find: 'awaitBodies(app, room);',
    replace: 'void [awaitBodies, room];',
    caughtBy: inOperator('from one network keep no scraper and no key out'),
  },
  {
    name: 'a form may take half a minute',
    file: 'control-plane/src/http/body/body-chunks.ts',
    find: 'Math.min(debtMsMax - debtMs, wholeByMs - startedMs)',
    replace: 'debtMsMax - debtMs',
    caughtBy: inPublic('have some seconds in all'),
  },
  {
    name: 'the bytes of a form without a cookie of ours are awaited',
    file: 'control-plane/src/http/account/session/guard.ts',
    find: 'if (!isForm) return;',
    replace: 'return;',
    caughtBy: inPublic('are refused for what their headers say before a byte is awaited'),
  },
  {
    name: 'the port behind a forwarded address is a part of it',
    file: 'control-plane/src/http/headers/forwarded-for.ts',
    find: 'const address = ipv4 ?? ipv6 ?? entry;',
    replace: 'const address = entry;\n  if (ipv4 !== undefined) return ipv6 ?? entry;',
    caughtBy: inFile(
      'control-plane/test/http/account/attacks/brute-force.test.ts',
      'guessing passwords',
    )('takes the port that a proxy of ours has written for no part of the address'),
  },
  {
    name: 'an account holds every place of the playground',
    file: 'control-plane/src/services/playground/use-playground.ts',
    find: 'return await this.#uploading.run({ key: accountId }, async () => {',
    replace: 'return await this.#uploading.run({ key: crypto.randomUUID() }, async () => {',
    caughtBy: {
      file: 'control-plane/test/http/account/playground.test.ts',
      test: 'an account that holds its share back leaves the others theirs',
    },
  },
  {
    name: 'each address of a network has turns of its own at hashing',
    file: PASSWORDS,
    find: 'this.#strangers.run({ key: networkOf(address) }, work)',
    replace: 'this.#strangers.run({ key: address }, work)',
    caughtBy: inTurns('are shared by network: many addresses of one are one'),
  },
  {
    name: 'who is known waits behind strangers for a hash',
    file: PASSWORDS,
    find: 'return knownId === undefined',
    replace: 'return knownId === undefined || networkOf(knownId) !== undefined',
    caughtBy: inTurns(
      'of who is known are not behind those of strangers, from however many networks',
    ),
  },
  {
    name: 'a refused attempt to sign in leaves a row',
    file: 'control-plane/src/store/people/sign-in-throttle.ts',
    find: 'if (waitMs > 0) return waitMs;',
    replace: 'if (waitMs > 0 && rows.length === keys.length) return waitMs;',
    caughtBy: inFile(
      'control-plane/test/store/people/sign-in-throttle.test.ts',
      'rows of the throttle on sqlite',
    )('are made by attempts that are counted, and by none that is refused'),
  },
  {
    name: 'exports that nobody reads keep their places',
    file: 'control-plane/src/services/sales/ledger-history.ts',
    find: '&& !this.#endLatest()',
    replace: '',
    caughtBy: inFile(
      'control-plane/test/services/sales/ledger-history.test.ts',
      'exports whose readers are late',
    )('give their places to those of other accounts, the latest first'),
  },
  {
    name: 'a body that is chunked in HTTP/1.0 is read, and what is behind it',
    file: 'control-plane/src/http/answers/client-errors.ts',
    find: 'if (isFramedOtherwise(request)) {',
    replace: 'if (isFramedOtherwise(request) && request.url === undefined) {',
    caughtBy: {
      file: 'control-plane/test/http/connections/sockets.test.ts',
      test: 'bodies whose end something before us may see elsewhere',
    },
  },
  {
    name: 'a port takes more connections than there may be open files',
    file: 'program/open-files.ts',
    find: 'Math.max(1, Math.min(wanted, Math.floor(filesMax * share)))',
    replace: 'Math.max(1, wanted, filesMax * 0 + share * 0)',
    caughtBy: {
      file: 'program/test/open-files.test.ts',
      test: 'connections take their share of it, and no more than are wanted',
    },
  },
  {
    name: 'sign-ins that succeed take hashes without an end',
    file: 'control-plane/src/services/people/sign-in-throttle.ts',
    find: 'if (waitMs === 0) await this.#store.giveBack(keys);',
    replace: 'void waitMs;\n      await this.#store.giveBack(keys);',
    caughtBy: inFile(
      'control-plane/test/services/people/sign-in.test.ts',
      'the throttle of sign-in on sqlite',
    )('counts those that succeed, too, once there are very many of one mail'),
  },
];
