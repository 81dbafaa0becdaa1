/** Every method of the core's stores that changes something, whose answer is lost or that comes late. */
import ava from 'ava';
import { CORE_SUITE } from './core-suite.ts';
import { loseAnswers } from './losing-answers.ts';

loseAnswers(ava, CORE_SUITE);
