/** Reports whose answers are lost, and the rows that their statements read. */
import ava from 'ava';
import { countRows } from '../core/test/counting-rows.ts';
import { loseAnswers } from '../core/test/losing-answers.ts';
import { FLEET_SIZE_SUITE } from './test/fleet-size-suite.ts';

loseAnswers(ava, FLEET_SIZE_SUITE);
await countRows(ava.serial, FLEET_SIZE_SUITE);
