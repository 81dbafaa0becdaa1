/** What strangers may hold of a port: places, seconds, guesses. */
import { inFile, type Mutation } from './mutation.ts';

const ROOM = 'program/ports/port-room.ts';
const HALF_SENT = 'control-plane/test/http/connections/half-sent-forms.test.ts';
const inBodies = inFile('program/ports/test/port-room.test.ts', 'bodies on their way');
const inPlaces = inFile('program/ports/test/port-room.test.ts', 'a port with few places left');
const inPublic = inFile(HALF_SENT, 'half-sent forms on the public port');
const inOperator = inFile(HALF_SENT, "half-sent forms on the operator's port");

export const PORT_MUTATIONS: readonly Mutation[] = [
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
    file: 'control-plane/src/http/connections/awaited-bodies.ts',
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
    find: 'if (isForm) requireFormHeaders(request);',
    replace: '',
    caughtBy: inPublic('are refused for what their headers say before a byte is awaited'),
  },
];
