"""The grammar of the PRISM language that is read here, in the notation of lark, and the words it reserves.

Operators bind as in PRISM, from weak to strong: ``U W R``, ``X F G``, ``? :``, ``=>``, ``<=>``, ``|``, ``&``, ``!``,
``= !=``, ``< <= > >=``, ``+ -``, ``* /``, ``^``, unary minus. Path operators are read wherever an expression may stand;
`scope` refuses them outside properties.
"""

from __future__ import annotations

GRAMMAR = r"""
model: declaration*
?declaration: model_type | constant | formula | label | global_variable | module | renaming | rewards | init_block

model_type: MDP | DTMC | IMDP | IDTMC | NONDETERMINISTIC | PROBABILISTIC
constant: CONST constant_type? NAME (EQUAL expression)? SEMICOLON
!constant_type: INT | DOUBLE | BOOL
formula: FORMULA NAME EQUAL expression SEMICOLON
label: LABEL STRING EQUAL expression SEMICOLON
global_variable: GLOBAL variable
init_block: INIT expression ENDINIT

module: MODULE NAME module_item* ENDMODULE
?module_item: variable | command
renaming: MODULE NAME EQUAL NAME LEFT_BRACKET pair (COMMA pair)* RIGHT_BRACKET ENDMODULE
pair: NAME EQUAL NAME

variable: NAME COLON variable_type initial? SEMICOLON
?variable_type: LEFT_BRACKET expression DOT_DOT expression RIGHT_BRACKET -> bounded
              | BOOL -> boolean
              | INT -> unbounded
initial: INIT expression

command: action guard ARROW updates SEMICOLON
action: LEFT_BRACKET action_name? RIGHT_BRACKET
!action_name: NAME | C | F | G | I | P | R | S | U | W | X
?guard: expression
updates: certain_update | likely_update (PLUS likely_update)*
certain_update: assignments
likely_update: chance COLON assignments
?chance: expression | LEFT_BRACKET expression COMMA expression RIGHT_BRACKET -> interval
assignments: assignment (AND assignment)* | TRUE
assignment: LEFT_PAREN PRIMED EQUAL expression RIGHT_PAREN

rewards: REWARDS STRING? reward_item* ENDREWARDS
reward_item: action? expression COLON expression SEMICOLON

?expression: path
?path: simple_path | simple_path (U | W | R) bound? simple_path -> binary_path
?simple_path: choice | (X | F | G) bound? simple_path -> unary_path
?choice: implication
       | implication QUESTION choice COLON choice -> conditional
?implication: equivalence | implication IMPLIES equivalence -> binary
?equivalence: disjunction | equivalence IFF disjunction -> binary
?disjunction: conjunction | conjunction (OR conjunction)+ -> chain
?conjunction: negation | negation (AND negation)+ -> chain
?negation: equality | NOT negation -> prefix
?equality: relation | equality (EQUAL | NOT_EQUAL) relation -> binary
?relation: sum | relation (LESS | LESS_EQUAL | GREATER | GREATER_EQUAL) sum -> binary
?sum: product | product ((PLUS | MINUS) product)+ -> total
?product: power | power ((TIMES | DIVIDE) power)+ -> scaled
?power: factor | factor POWER power -> binary
?factor: atom | MINUS factor -> prefix
?atom: NUMBER -> number
     | TRUE -> boolean_value
     | FALSE -> boolean_value
     | NAME -> name
     | STRING -> label_name
     | function_name LEFT_PAREN expression (COMMA expression)* RIGHT_PAREN -> call
     | FUNC LEFT_PAREN old_function_name COMMA expression (COMMA expression)* RIGHT_PAREN -> old_call
     | LEFT_PAREN expression RIGHT_PAREN -> parenthesis
!function_name: FUNCTION | MIN | MAX
!old_function_name: NAME | MIN | MAX

properties: property*
property_file: (constant | formula | label | property)*
property: (STRING COLON)? query SEMICOLON?
?query: quantity | FILTER LEFT_PAREN filter_name COMMA quantity (COMMA expression)? RIGHT_PAREN -> filtered
!filter_name: NAME | MIN | MAX | AND | OR | PLUS
quantity: probability_operator question LEFT_BRACKET expression state_filter* RIGHT_BRACKET -> probability
        | reward_operator question LEFT_BRACKET reward_path state_filter* RIGHT_BRACKET -> reward
        | S question LEFT_BRACKET expression RIGHT_BRACKET -> steady_state
question: QUERY | (LESS | LESS_EQUAL | GREATER | GREATER_EQUAL) expression
!state_filter: LEFT_BRACE (expression | MIN | MAX) RIGHT_BRACE
!probability_operator: (PMAX | PMIN | P | PMAXMAX | PMAXMIN | PMINMAX | PMINMIN) extremum?
!reward_operator: (RMAX | RMIN | R | RMAXMAX | RMAXMIN | RMINMAX | RMINMIN) reward_index? extremum?
!reward_index: LEFT_BRACE expression RIGHT_BRACE
!extremum: MAX | MIN | MAXMAX | MAXMIN | MINMAX | MINMIN
bound: (LESS_EQUAL | LESS | GREATER_EQUAL | GREATER | EQUAL) bound_value
     | LEFT_BRACKET expression COMMA expression RIGHT_BRACKET -> window
?bound_value: bound_product | bound_product (PLUS bound_product)+ -> total
?bound_product: bound_atom | bound_atom (TIMES bound_atom)+ -> scaled
?bound_atom: NUMBER -> number
           | NAME -> name
           | LEFT_PAREN expression RIGHT_PAREN -> parenthesis
reward_path: simple_path -> reward_until
           | NAME simple_path -> named_reward_until
           | C LESS_EQUAL expression -> cumulative
           | C LESS expression -> cumulative
           | C -> total_reward
           | I EQUAL expression -> instant
           | S -> steady_reward

NUMBER: /\d+\.(?!\.)\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+/
PRIMED.2: /[A-Za-z_][A-Za-z_0-9]*\s*'/
FUNCTION.2: /(pow|mod|floor|ceil|round|log)(?=\s*\()/
NAME: /[A-Za-z_][A-Za-z_0-9]*/
STRING: /"[A-Za-z_][A-Za-z_0-9]*"/
ARROW: "->"
DOT_DOT: ".."
QUERY: "=?"
IMPLIES: "=>"
IFF: "<=>"
NOT_EQUAL: "!="
LESS_EQUAL: "<="
GREATER_EQUAL: ">="
LESS: "<"
GREATER: ">"
EQUAL: "="
NOT: "!"
OR: "|"
AND: "&"
PLUS: "+"
MINUS: "-"
TIMES: "*"
DIVIDE: "/"
POWER: "^"
QUESTION: "?"
COLON: ":"
SEMICOLON: ";"
COMMA: ","
LEFT_PAREN: "("
RIGHT_PAREN: ")"
LEFT_BRACKET: "["
RIGHT_BRACKET: "]"
LEFT_BRACE: "{"
RIGHT_BRACE: "}"
COMMENT: /\/\/[^\n]*/
%ignore COMMENT
%ignore /\s+/
"""

# Words with a meaning in the grammar above: the lexer turns a NAME with this spelling into the token of that name.
KEYWORDS = {
    word: word.upper()
    for word in (
        "mdp dtmc nondeterministic probabilistic const int double bool formula label global init endinit "
        "imdp idtmc module endmodule rewards endrewards true false min max func Pmax Pmin P Rmax Rmin R F U G X W C "
        "I S filter Pmaxmax Pmaxmin Pminmax Pminmin Rmaxmax Rmaxmin Rminmax Rminmin maxmax maxmin minmax minmin"
    ).split()
}

# Words of the PRISM language that are refused by name, with the reason.
UNSUPPORTED = {
    "ctmc": "continuous-time Markov chains are not supported (only mdp and dtmc)",
    "stochastic": "continuous-time Markov chains are not supported (only mdp and dtmc)",
    "pta": "probabilistic timed automata are not supported (only mdp and dtmc)",
    "popta": "partially observable timed automata are not supported (only mdp and dtmc)",
    "pomdp": "partially observable MDPs are not supported (only mdp and dtmc)",
    "smg": "stochastic games are not supported (only mdp and dtmc)",
    "csg": "concurrent stochastic games are not supported (only mdp and dtmc)",
    "tsg": "turn-based stochastic games are not supported (only mdp and dtmc)",
    "tptg": "timed games are not supported (only mdp and dtmc)",
    "ma": "Markov automata are not supported (only mdp and dtmc)",
    "clock": "clock variables are not supported",
    "invariant": "clock invariants are not supported",
    "endinvariant": "clock invariants are not supported",
    "system": "system … endsystem is not supported: modules synchronise on all shared action names",
    "endsystem": "system … endsystem is not supported: modules synchronise on all shared action names",
    "observable": "observables are not supported",
    "observables": "observables are not supported",
    "endobservables": "observables are not supported",
    "rate": "constants of type rate are not supported",
    "prob": "constants of type prob are not supported: write double",
    "multi": "multi-objective properties are not supported",
}

# Operators of properties that are names everywhere else.
UNSUPPORTED_OPERATORS = ("A", "E", "LTL")

# How a token is called in an error message.
TOKEN_NAMES = {
    "NAME": "a name", "NUMBER": "a number", "STRING": 'a quoted name like "goal"', "PRIMED": "an assignment x'=…",
    "FUNCTION": "a function", "$END": "the end of the text",
    "ARROW": "'->'", "DOT_DOT": "'..'", "QUERY": "'=?'", "IMPLIES": "'=>'", "IFF": "'<=>'", "NOT_EQUAL": "'!='",
    "LESS_EQUAL": "'<='", "GREATER_EQUAL": "'>='", "LESS": "'<'", "GREATER": "'>'", "EQUAL": "'='", "NOT": "'!'",
    "OR": "'|'", "AND": "'&'", "PLUS": "'+'", "MINUS": "'-'", "TIMES": "'*'", "DIVIDE": "'/'", "POWER": "'^'",
    "QUESTION": "'?'",
    "COLON": "':'", "SEMICOLON": "';'", "COMMA": "','", "LEFT_PAREN": "'('", "RIGHT_PAREN": "')'",
    "LEFT_BRACKET": "'['",
    "RIGHT_BRACKET": "']'", "LEFT_BRACE": "'{'", "RIGHT_BRACE": "'}'",
}  # fmt: skip
TOKEN_NAMES |= {token: f"'{word}'" for word, token in KEYWORDS.items()}


def declared_keywords() -> str:
    """The ``%declare`` line for the tokens that the lexer makes out of names."""
    return "%declare " + " ".join(sorted(set(KEYWORDS.values()))) + "\n"
